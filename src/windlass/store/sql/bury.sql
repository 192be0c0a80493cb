-- A pending job goes to the dead letters by hand. No fence: it has no lease.
update windlass.jobs
   set state = 'dead', due = 0, reason = :reason, error = :error, changes = :changes,
       finished_at = :now, updated_at = :now
 where seq = :seq and state = 'pending';
