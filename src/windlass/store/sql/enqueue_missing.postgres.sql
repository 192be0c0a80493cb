-- Accept those jobs of which the id is not known; their keys were taken before.
with clock as materialized (
    select coalesce(cast(:now as bigint), windlass.now()) as now
),
given as materialized (
    select *, greatest(coalesce(g.at, clock.now + coalesce(g.delay, 0)), clock.now) as run_at
      from clock,
           unnest(cast(:ids as uuid[]), cast(:types as text[]), cast(:payloads as text[]), cast(:priorities as smallint[]),
                  cast(:tenants as text[]), cast(:versions as integer[]), cast(:keys as text[]), cast(:callers as text[]),
                  cast(:traceparents as text[]), cast(:max_attempts as smallint[]), cast(:delays as bigint[]),
                  cast(:ats as bigint[]), cast(:digests as text[])) with ordinality
           as g (id, type, payload, priority, tenant, version, key, caller, traceparent, max_attempts, delay, at, digest, place)
)
insert into windlass.jobs (
    id, type, state, priority, due, tenant, payload, schema_version, key, caller, traceparent,
    max_attempts, created_at, enqueued_at, updated_at, run_at
)
select id, type, 'pending', priority, case when run_at <= now then 1 else 0 end, tenant, cast(payload as json), version,
       key, caller, traceparent, max_attempts, now, now, now, run_at
  from given
 order by place
on conflict (id) do nothing
returning id;
