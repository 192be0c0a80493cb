-- name: enqueue_new [postgres]
-- Accept jobs that are new and have no key, all or none; an id that is known fails the statement, and the caller then
-- looks closer. They are numbered in the order in which the arrays are read: sorting them again would cost a tenth.
-- With a hint, whoever listens is told by this very commit, which then does not wait for the disk: else all who tell would
-- wait for each other's. The caller flushes before it answers.
with clock as materialized (
    select coalesce(cast(:now as bigint), windlass.now()) as now,
           case when cast(:hint as text) is not null
                then set_config('synchronous_commit', 'off', true) || cast(pg_notify(:channel, cast(:hint as text)) as text)
           end as told
),
given as not materialized (
    select *, greatest(coalesce(g.at, clock.now + coalesce(g.delay, 0)), clock.now) as run_at
      from clock,
           unnest({new[]}, cast(:delay as bigint[]), cast(:at as bigint[]))
           as g ({new}, delay, at)
)
insert into windlass.jobs (
    {new}, state, due, created_at, enqueued_at, updated_at, run_at
)
select {new}, 'pending', case when run_at <= now then 1 else 0 end, now, now, now, run_at
  from given;

-- name: flush [postgres]
-- What was committed before this, and did not wait for disk and replica, is durable when this is: a lock on a row stands in the log,
-- and so its own commit waits for all that stands there before it. Nobody ever waits for the lock: each takes a row that is free,
-- and only if none is they share the first, which is there as long as the schema is. For each that shares a row the server
-- keeps a list of who does, until it freezes the table. A message in the log would do the same, but its function may have been
-- taken away from us.
with own as materialized (
    select number from windlass.schema limit 1 for no key update skip locked
),
shared as materialized (
    select number from windlass.schema where number = 1 and not exists (select 1 from own) for key share
)
select number from own
union all
select number from shared;

-- name: enqueue_keyed [postgres]
-- Accept jobs that are new, all or none; a key or id that is known fails the statement, and the caller then looks
-- closer. Keys go in sorted, so that two batches with the same keys do not wait for each other. A tenant's key goes in
-- twice: within its own scope, and where processes of the release before look for it.
with clock as materialized (
    select coalesce(cast(:now as bigint), windlass.now()) as now
),
given as materialized (
    select *, greatest(coalesce(g.at, clock.now + coalesce(g.delay, 0)), clock.now) as run_at
      from clock,
           unnest({new[]}, cast(:delay as bigint[]), cast(:at as bigint[]), cast(:digest as text[]), cast(:scope as text[])) with ordinality
           as g ({new}, delay, at, digest, scope, place)
),
kept as (
    insert into windlass.keys (caller, key, job_id, digest, answered)
    select scope, key, id, digest, answered
      from (select scope, key, id, digest, 1 as answered from given where key is not null and tenant <> ''
             union all
            select caller, key, id, digest, 0 from given where key is not null) as every
     order by answered desc, scope, key
)
insert into windlass.jobs (
    {new}, state, due, created_at, enqueued_at, updated_at, run_at
)
select {new}, 'pending', case when run_at <= now then 1 else 0 end, now, now, now, run_at
  from given
 order by place;

-- name: enqueue_missing [postgres]
-- Accept those jobs of which the id is not known; their keys were taken before.
with clock as materialized (
    select coalesce(cast(:now as bigint), windlass.now()) as now
),
given as materialized (
    select *, greatest(coalesce(g.at, clock.now + coalesce(g.delay, 0)), clock.now) as run_at
      from clock,
           unnest({new[]}, cast(:delay as bigint[]), cast(:at as bigint[]), cast(:digest as text[])) with ordinality
           as g ({new}, delay, at, digest, place)
)
insert into windlass.jobs (
    {new}, state, due, created_at, enqueued_at, updated_at, run_at
)
select {new}, 'pending', case when run_at <= now then 1 else 0 end, now, now, now, run_at
  from given
 order by place
on conflict (id) do nothing
returning id;

-- name: take_keys [postgres]
-- Take keys within their scopes for jobs, in order, so that two batches with the same keys do not wait for each other.
-- What is missing in the answer belongs to another job.
insert into windlass.keys (caller, key, job_id, digest, answered)
select g.scope, g.key, g.id, g.digest, :answered
  from unnest(cast(:scopes as text[]), cast(:keys as text[]), cast(:ids as uuid[]), cast(:digests as text[]))
       as g (scope, key, id, digest)
 order by g.scope, g.key
on conflict (caller, key) do nothing
returning caller as scope, key;

-- name: key_holders [postgres]
-- Which jobs have these keys within their scopes?
select k.caller as scope, k.key, k.job_id, k.digest
  from unnest(cast(:scopes as text[]), cast(:keys as text[])) as g (scope, key)
  join windlass.keys as k on k.caller = g.scope and k.key = g.key;

-- name: free_keys [postgres]
-- Free the keys of records that are gone, but only from the jobs that are known to have had them.
delete from windlass.keys as k
 using unnest(cast(:scopes as text[]), cast(:keys as text[]), cast(:ids as uuid[])) as g (scope, key, id)
 where k.caller = g.scope and k.key = g.key and k.job_id = g.id;

-- name: by_ids [postgres]
-- Live jobs by id, and whether each is aside because no worker could read it.
select j.*, exists (select 1 from windlass.unread as u
                     where u.seq = j.seq and u.aside = 1 and u.run_at = j.run_at and j.state = 'pending' and j.due = 0) as unread
  from windlass.jobs as j where j.id = any (cast(:ids as uuid[]));

-- name: by_ids_ended [postgres]
-- Archived jobs by id.
select * from windlass.archive where id = any (cast(:ids as uuid[]));

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
