-- Due jobs by type, and since when the first of them has waited.
select type, count(*) as count, min(run_at) as since from windlass.jobs where due = 1 group by type;
