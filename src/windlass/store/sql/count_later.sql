-- Pending jobs that wait for their time, by type and whether they have been tried.
select type, attempts > 0 as tried, run_at <= :now as due, count(*) as count
  from windlass.jobs
 where state = 'pending' and due = 0
 group by 1, 2, 3;
