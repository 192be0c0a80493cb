-- A dead job runs again: same row, history kept, attempts anew. No fence: it has no lease.
update windlass.jobs
   set state = 'pending',
       due = :due,
       run_at = :run_at,
       priority = coalesce(:priority, priority),
       payload = coalesce(:payload, payload),
       schema_version = coalesce(:schema_version, schema_version),
       attempts = 0,
       snoozes = 0,
       interruptions = 0,
       losses = 0,
       replay_count = replay_count + 1,
       changes = :changes,
       enqueued_at = :now,
       updated_at = :now,
       finished_at = null
 where seq = :seq and state = 'dead';
