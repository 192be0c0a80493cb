-- Due jobs by type, and the one that came first.
select type, count(*) as count, min(seq) as first from windlass.jobs where due = 1 group by type;
