-- Where every live job stands, by type and priority, and since when the first of them has; what is due but has not been
-- promoted yet is due all the same. One statement: an idle fleet must not ask much.
select type, priority, 'due' as view, count(*) as count, min(run_at) as since
  from windlass.jobs where due = 1 group by 1, 2
union all
select type, priority,
       case when run_at >= :never then 'waiting' when run_at <= :now then 'due'
            when attempts > 0 then 'retrying' else 'scheduled' end,
       count(*), min(run_at)
  from windlass.jobs where state = 'pending' and due = 0 group by 1, 2, 3
union all
select type, priority, case when lease_until < :now then 'stuck' else 'processing' end, count(*), min(started_at)
  from windlass.jobs where state = 'processing' group by 1, 2, 3
union all
select type, priority, 'dead', count(*), min(finished_at)
  from windlass.jobs where state = 'dead' group by 1, 2;
