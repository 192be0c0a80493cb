-- A job that nobody runs ends: cancelled while pending, or discarded while dead. No fence: it has no lease.
insert into windlass.archive (
    seq, id, type, state, priority, tenant, payload, schema_version, key, caller, traceparent, batch,
    max_attempts, attempts, claims, snoozes, interruptions, losses, replay_count,
    created_at, enqueued_at, updated_at, run_at, started_at, finished_at,
    worker, last_token, reason, error, history, changes
)
select seq, id, type, :state, priority, tenant, payload, schema_version, key, caller, traceparent, batch,
       max_attempts, attempts, claims, snoozes, interruptions, losses, replay_count,
       created_at, enqueued_at, :now, run_at, started_at, :now,
       worker, last_token, reason, error, history, :changes
  from windlass.jobs
 where seq = :seq and state = :expected;
