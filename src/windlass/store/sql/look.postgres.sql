-- All that a worker must know each second, in one statement. Running jobs are not read one by one: of each worker that
-- holds any, only the lease that ends first.
with recursive clock as materialized (
    select coalesce(cast(:now as bigint), windlass.now()) as now
),
alive as materialized (
    select * from windlass.workers where state in ('running', 'draining')
),
holder (worker, lease_until) as (
    (select j.worker, j.lease_until
       from windlass.jobs as j
      where j.state = 'processing'
      order by j.worker, j.lease_until limit 1)
     union all
    select next.worker, next.lease_until
      from holder as h,
           lateral (select j.worker, j.lease_until
                      from windlass.jobs as j
                     where j.state = 'processing' and j.worker > h.worker
                     order by j.worker, j.lease_until limit 1) as next
),
wanted as materialized (
    select * from unnest(cast(:types as text[]), cast(:versions as integer[])) as w (type, known)
),
later as materialized (
    select min(first.run_at) as run_at
      from wanted as w,
           lateral (select j.run_at
                      from windlass.jobs as j
                     where j.state = 'pending' and j.due < 1 and j.type = w.type
                     order by j.run_at limit 1) as first
)
select clock.now,
       (select coalesce(json_agg(alive order by alive.id), '[]') from alive) as workers,
       (select coalesce(json_object_agg(j.token, j.request), '{}')
          from windlass.jobs as j
         where j.state = 'processing' and j.worker = :worker and j.request is not null) as requests,
       exists (select 1 from holder where holder.lease_until < clock.now) as expired,
       exists (select 1 from holder where holder.worker not in (select id from alive)) as orphaned,
       exists (select 1 from wanted as w,
                      lateral (select 1 from windlass.jobs as j
                                where j.due = 1 and j.type = w.type and j.schema_version <= w.known
                                limit 1) as j)
       or coalesce(later.run_at <= clock.now, false) as claimable,
       later.run_at as later,
       (select min(s.next_at) from windlass.schedules as s where s.paused = 0 and s.withdrawn = 0) as fires,
       coalesce((select r.value from windlass.revisions as r where r.name = 'flow'), 0) as revision
  from clock, later;
