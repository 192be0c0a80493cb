-- A job ends: its record moves to the archive. The token is the fence; a settle keeps it as the last
-- token, so that a repeat after a lost answer finds itself done. A job that others wait for, or that is one of a
-- batch, is left for who sees to those as well.
insert into windlass.archive (
    seq, id, type, state, priority, tenant, payload, schema_version, key, caller, traceparent, batch,
    max_attempts, attempts, claims, snoozes, interruptions, losses, replay_count,
    created_at, enqueued_at, updated_at, run_at, started_at, finished_at,
    worker, last_token, reason, error, result, history, changes
)
select seq, id, type, :state, priority, tenant, payload, schema_version, key, caller, traceparent, batch,
       max_attempts, attempts, claims, snoozes, interruptions, losses, replay_count,
       created_at, enqueued_at, :now, run_at, started_at, :now,
       worker, :last_token, :reason, :error, :result, :history, changes
  from windlass.jobs
 where seq = :seq and token = :token and (:marked or (batch is null and has_dependents = 0));
