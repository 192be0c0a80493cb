-- Pending jobs that wait for their time, for a retry or for others, by type and priority; those whose time has come but
-- which nobody has promoted yet are due.
select type, priority, attempts > 0 as tried, run_at <= :now as due, run_at >= :never as waits, count(*) as count,
       min(run_at) as since
  from windlass.jobs
 where state = 'pending' and due = 0
 group by 1, 2, 3, 4, 5;
