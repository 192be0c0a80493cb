-- Jobs end: their records move to the archive in one step. The token alone is the fence: with the state beside it the
-- planner reads all running jobs. A row that somebody else holds at this moment is left for the next batch.
-- A job that others wait for, or that is one of a batch, is left for a transaction with what follows from that.
with clock as materialized (
    select now, windlass.moment(now) as moment from (select coalesce(cast(:now as bigint), windlass.now()) as now) as c
),
given as materialized (
    select *
      from unnest(cast(:seqs as bigint[]), cast(:tokens as uuid[]), cast(:states as text[]), cast(:last_tokens as uuid[]),
                  cast(:reasons as text[]), cast(:errors as text[]), cast(:results as text[]), cast(:histories as text[]))
           as g (seq, token, state, last_token, reason, error, result, history)
),
locked as materialized (
    select j.spot, g.*
      from (select * from given order by seq) as g,
           lateral (select j.ctid as spot
                      from windlass.jobs as j
                     where j.seq = g.seq and j.token = g.token
                       and (cast(:marked as boolean) or (j.batch is null and j.has_dependents = 0))
                       for update skip locked) as j
),
gone as (
    delete from windlass.jobs as j
     using locked as g
     where j.ctid = g.spot and j.token = g.token
    returning j.*, g.state as new_state, g.last_token as new_last_token, g.reason as new_reason, g.error as new_error,
              g.result, g.history as new_history
),
kept as (
    insert into windlass.archive (
        seq, id, type, state, priority, tenant, payload, schema_version, key, caller, traceparent, batch,
        max_attempts, attempts, claims, snoozes, interruptions, losses, replay_count,
        created_at, enqueued_at, updated_at, run_at, started_at, finished_at,
        worker, last_token, reason, error, result, history, changes
    )
    select seq, id, type, new_state, priority, tenant, payload, schema_version, key, caller, traceparent, batch,
           max_attempts, attempts, claims, snoozes, interruptions, losses, replay_count,
           created_at, enqueued_at, clock.now, run_at, started_at, clock.now,
           worker, new_last_token, new_reason, new_error, result,
           replace(new_history, '_at":"0001-01-01T00:00:00Z"', '_at":"' || clock.moment || '"'), changes
      from gone, clock
)
select token, cast(null as text) as request, batch, has_dependents from gone;
