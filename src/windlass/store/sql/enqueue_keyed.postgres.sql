-- Accept jobs that are new, all or none; a key or id that is known fails the statement, and the caller then looks
-- closer. Keys go in sorted, so that two batches with the same keys do not wait for each other.
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
),
kept as (
    insert into windlass.keys (caller, key, job_id, digest)
    select caller, key, id, digest from given where key is not null order by caller, key
)
insert into windlass.jobs (
    id, type, state, priority, due, tenant, payload, schema_version, key, caller, traceparent,
    max_attempts, created_at, enqueued_at, updated_at, run_at
)
select id, type, 'pending', priority, case when run_at <= now then 1 else 0 end, tenant, cast(payload as json), version,
       key, caller, traceparent, max_attempts, now, now, now, run_at
  from given
 order by place;
