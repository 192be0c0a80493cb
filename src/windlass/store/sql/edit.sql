-- Change a pending job. No fence: it has no lease.
update windlass.jobs
   set priority = coalesce(:priority, priority),
       run_at = coalesce(:run_at, run_at),
       due = coalesce(:due, due),
       payload = coalesce(:payload, payload),
       schema_version = coalesce(:schema_version, schema_version),
       changes = :changes,
       updated_at = :now
 where seq = :seq and state = 'pending';
