-- Scheduled jobs whose time has come enter the claim index. No fence: pending jobs have no lease.
update windlass.jobs
   set due = 1
 where seq in (
     select seq from windlass.jobs
      where state = 'pending' and due = 0 and run_at <= :now
      order by run_at
      limit :limit
        for update skip locked
 );
