-- Dead letters by type and priority, and since when the first has lain there.
select type, priority, count(*) as count, min(finished_at) as since from windlass.jobs where state = 'dead' group by 1, 2;
