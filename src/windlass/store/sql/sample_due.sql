-- Due jobs by type and priority, and since when the first of them has waited.
select type, priority, count(*) as count, min(run_at) as since from windlass.jobs where due = 1 group by type, priority;
