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
