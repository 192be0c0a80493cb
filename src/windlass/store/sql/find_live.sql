-- Live jobs, to be ordered and limited alone or together with the others.
-- The filter's clauses stand where the mark is.
select seq, id, type, state, priority, tenant, payload, schema_version, key, caller, traceparent,
       max_attempts, attempts, claims, snoozes, interruptions, losses, replay_count,
       created_at, enqueued_at, updated_at, run_at, started_at, finished_at, worker,
       reason, error, history, changes,
       lease_until, request, null as result
  from windlass.jobs
 where seq < :before /*where*/
