-- Many jobs are completed, each fenced by its own token: their records move to the archive, as `finish` does it for one.
insert into windlass.archive (
    seq, id, type, state, priority, tenant, payload, schema_version, key, caller, traceparent, batch,
    max_attempts, attempts, claims, snoozes, interruptions, losses, replay_count,
    created_at, enqueued_at, updated_at, run_at, started_at, finished_at,
    worker, last_token, reason, error, result, history, changes
)
select jobs.seq, jobs.id, jobs.type, 'completed', priority, tenant, payload, schema_version, jobs.key, caller, traceparent, batch,
       max_attempts, attempts, claims, snoozes, interruptions, losses, replay_count,
       created_at, enqueued_at, :now, run_at, started_at, :now,
       worker, token, null, null, json_extract(done.value, '$[2]'), json_extract(done.value, '$[3]'), changes
  from json_each(:done) as done
 cross join windlass.jobs as jobs
 where jobs.seq = json_extract(done.value, '$[0]') and jobs.token = json_extract(done.value, '$[1]')
   and batch is null and has_dependents = 0;
