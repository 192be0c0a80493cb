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
           unnest(cast(:ids as uuid[]), cast(:types as text[]), cast(:payloads as text[]), cast(:priorities as smallint[]),
                  cast(:tenants as text[]), cast(:versions as integer[]), cast(:keys as text[]), cast(:callers as text[]),
                  cast(:traceparents as text[]), cast(:max_attempts as smallint[]), cast(:delays as bigint[]),
                  cast(:ats as bigint[]))
           as g (id, type, payload, priority, tenant, version, key, caller, traceparent, max_attempts, delay, at)
)
insert into windlass.jobs (
    id, type, state, priority, due, tenant, payload, schema_version, key, caller, traceparent,
    max_attempts, created_at, enqueued_at, updated_at, run_at
)
select id, type, 'pending', priority, case when run_at <= now then 1 else 0 end, tenant, cast(payload as json), version,
       key, caller, traceparent, max_attempts, now, now, now, run_at
  from given;
