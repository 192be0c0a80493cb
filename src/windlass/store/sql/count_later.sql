-- Pending jobs that wait for their time or for others, by type and whether they have been tried.
select type, attempts > 0 as tried, run_at <= :now as due, run_at >= :never as waits, count(*) as count
  from windlass.jobs
 where state = 'pending' and due = 0
 group by 1, 2, 3, 4;
