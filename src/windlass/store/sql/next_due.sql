-- When is the next scheduled job due?
select min(run_at) as run_at from windlass.jobs where state = 'pending' and due = 0;
