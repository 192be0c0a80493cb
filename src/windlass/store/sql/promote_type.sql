-- The same for one type: a worker must not wait until the jobs of others have been promoted.
update windlass.jobs
   set due = 1
 where seq in (
     select seq from windlass.jobs
      where state = 'pending' and due = 0 and type = :type and run_at <= :now
      order by run_at
      limit :limit
 );
