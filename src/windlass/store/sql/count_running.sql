-- Running jobs by type and whether their lease has run out.
select type, lease_until < :now as stuck, count(*) as count
  from windlass.jobs
 where state = 'processing'
 group by 1, 2;
