-- Is there a dead letter past its retention? By the oldest, so that the plan for any value finds it in the index, too.
select coalesce(min(finished_at) < :before, false) as found from windlass.jobs where state = 'dead';
