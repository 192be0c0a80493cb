-- Has any lease run out?
select 1 from windlass.jobs where state = 'processing' and lease_until < :now limit 1;
