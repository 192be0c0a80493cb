-- Running jobs by type and priority, whether their lease has run out, and since when the first has run.
select type, priority, lease_until < :now as stuck, count(*) as count, min(started_at) as since
  from windlass.jobs
 where state = 'processing'
 group by 1, 2, 3;
