-- Ask the worker of a running job to stop it. Changes no state: the holder of the lease settles.
update windlass.jobs
   set request = :request, changes = :changes, updated_at = :now
 where seq = :seq and state = 'processing';
