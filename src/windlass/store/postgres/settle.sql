-- name: settled_already [postgres]
-- Which of these leases are still held (somebody has locked the row at this moment), and which were settled before?
-- What is in neither list is lost.
with given as materialized (
    select * from unnest(cast(:seqs as bigint[]), cast(:tokens as uuid[])) as g (seq, token)
)
select g.token, j.held, j.held and j.marked as marked
  from given as g,
       lateral (select j.token is not distinct from g.token as held,
                       j.batch is not null or j.has_dependents = 1 as marked
                  from windlass.jobs as j
                 where j.seq = g.seq and g.token in (j.token, j.last_token)
                 limit 1) as j
union all
select g.token, false, false
  from given as g join windlass.archive as a on a.seq = g.seq and a.last_token = g.token;

-- name: settle_bury [postgres]
-- Running jobs go to the dead letters. The token alone is the fence.
-- A job that others wait for, or that is one of a batch, is left for a transaction with what follows from that.
with clock as materialized (
    select now, windlass.moment(now) as moment from (select coalesce(cast(:now as bigint), windlass.now()) as now) as c
),
given as materialized (
    select *
      from unnest(cast(:seqs as bigint[]), cast(:tokens as uuid[]), cast(:losses as integer[]), cast(:last_tokens as uuid[]),
                  cast(:reasons as text[]), cast(:errors as text[]), cast(:histories as text[]))
           as g (seq, token, lost, last_token, reason, error, history)
),
locked as materialized (
    select j.spot, j.batch, j.has_dependents, g.*
      from (select * from given order by seq) as g,
           lateral (select j.ctid as spot, j.batch, j.has_dependents
                      from windlass.jobs as j
                     where j.seq = g.seq and j.token = g.token
                       and (cast(:marked as boolean) or (j.batch is null and j.has_dependents = 0))
                       for update skip locked) as j
),
changed as (
    update windlass.jobs as j
       set state = 'dead',
           losses = j.losses + g.lost,
           last_token = g.last_token,
           token = null,
           lease_until = null,
           request = null,
           reason = g.reason,
           error = g.error,
           history = replace(g.history, '_at":"0001-01-01T00:00:00Z"', '_at":"' || clock.moment || '"'),
           finished_at = clock.now,
           updated_at = clock.now
      from locked as g, clock
     where j.ctid = g.spot and j.token = g.token
    returning g.token, g.batch, g.has_dependents
)
select token, cast(null as text) as request, batch, has_dependents from changed;

-- name: settle_finish [postgres]
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
        {kept}, state, updated_at, finished_at, last_token, reason, error, result, history, changes
    )
    select {kept}, new_state, clock.now, clock.now, new_last_token, new_reason, new_error, result,
           replace(new_history, '_at":"0001-01-01T00:00:00Z"', '_at":"' || clock.moment || '"'), changes
      from gone, clock
)
select token, cast(null as text) as request, batch, has_dependents from gone;

-- name: settle_leave [postgres]
-- Running jobs whose payload this release cannot read become pending again, aside, for workers of other releases. The token
-- alone is the fence. As with what is put back, a job that somebody asked to stop is only answered.
with clock as materialized (
    select coalesce(cast(:now as bigint), windlass.now()) as now
),
given as materialized (
    select *
      from unnest(cast(:seqs as bigint[]), cast(:tokens as uuid[]), cast(:waits as bigint[]), cast(:last_tokens as uuid[]),
                  cast(:readers as text[]), cast(:fields as text[]), cast(:problems as text[]))
           as g (seq, token, wait, last_token, reader, field, problem)
),
locked as materialized (
    select g.*, j.spot, j.request
      from (select * from given order by seq) as g,
           lateral (select j.ctid as spot, j.request
                      from windlass.jobs as j
                     where j.seq = g.seq and j.token = g.token
                       for update skip locked) as j
),
changed as (
    update windlass.jobs as j
       set state = 'pending',
           due = 0,
           run_at = least(clock.now + g.wait, cast(:latest as bigint)),
           attempts = j.attempts - 1,
           worker = null,
           last_token = g.last_token,
           token = null,
           lease_until = null,
           request = null,
           updated_at = clock.now
      from locked as g, clock
     where j.ctid = g.spot and j.token = g.token and g.request is null
    returning g.token, j.seq, j.type, j.run_at, g.reader, g.field, g.problem
),
noted as (
    insert into windlass.unread as u (seq, type, aside, readers, field, problem, run_at, since)
    select c.seq, c.type, 1, c.reader, c.field, c.problem, c.run_at, clock.now from changed as c, clock
    on conflict (seq) do update
       set aside = 1,
           readers = case when strpos(u.readers, excluded.readers) > 0 then u.readers else u.readers || ' ' || excluded.readers end,
           field = excluded.field,
           problem = excluded.problem,
           run_at = excluded.run_at
)
select token, cast(null as text) as request from changed
union all
select token, request from locked where request is not null;

-- name: settle_put_back [postgres]
-- Running jobs become pending again: a retry, a snooze or a release. The token alone is the fence. A job that somebody
-- asked to stop is not put back: its request is the answer, and the caller carries it out. What was changed by somebody else
-- at this very moment is not answered, and tried again.
with clock as materialized (
    select now, windlass.moment(now) as moment from (select coalesce(cast(:now as bigint), windlass.now()) as now) as c
),
given as materialized (
    select *
      from unnest(cast(:seqs as bigint[]), cast(:tokens as uuid[]), cast(:waits as bigint[]), cast(:given_backs as integer[]),
                  cast(:snoozes as integer[]), cast(:interruptions as integer[]), cast(:losses as integer[]),
                  cast(:last_tokens as uuid[]), cast(:reasons as text[]), cast(:errors as text[]), cast(:histories as text[]))
           as g (seq, token, wait, given_back, snoozed, interrupted, lost, last_token, reason, error, history)
),
locked as materialized (
    select g.*, j.spot, j.request
      from (select * from given order by seq) as g,
           lateral (select j.ctid as spot, j.request
                      from windlass.jobs as j
                     where j.seq = g.seq and j.token = g.token
                       for update skip locked) as j
),
changed as (
    update windlass.jobs as j
       set state = 'pending',
           due = case when g.wait <= 0 then 1 else 0 end,
           run_at = least(clock.now + g.wait, cast(:latest as bigint)),
           attempts = j.attempts - g.given_back,
           snoozes = j.snoozes + g.snoozed,
           interruptions = j.interruptions + g.interrupted,
           losses = j.losses + g.lost,
           worker = null,
           last_token = g.last_token,
           token = null,
           lease_until = null,
           request = null,
           reason = coalesce(g.reason, j.reason),
           error = coalesce(g.error, j.error),
           history = replace(g.history, '_at":"0001-01-01T00:00:00Z"', '_at":"' || clock.moment || '"'),
           updated_at = clock.now
      from locked as g, clock
     where j.ctid = g.spot and j.token = g.token and g.request is null
    returning g.token
)
select token, cast(null as text) as request from changed
union all
select token, request from locked where request is not null;
