-- When is the next scheduled job of a type due?
select run_at
  from windlass.jobs
 where state = 'pending' and due = 0 and type = :type
 order by run_at
 limit 1;
