-- The jobs that were taken just now, all in one value: row by row, each would make its thread wait for the others' turn at the
-- interpreter. What is the same for all of them is not told. The order of the columns is that of `rows.Taken`.
select json_group_array(json_array(
           seq, id, type, priority, payload, schema_version, key, caller, tenant, traceparent,
           max_attempts, attempts, claims, snoozes, interruptions, losses, replay_count,
           created_at, enqueued_at, run_at, finished_at, request, error, history, changes, token
       )) as taken
  from windlass.jobs
 where seq in (select value from json_each(:picked));
