-- Is there a dead letter past its retention?
select exists (select from windlass.jobs where state = 'dead' and finished_at < :before) as found;
