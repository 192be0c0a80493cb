-- Take due jobs of the highest priority that is there: tenants in turn, beginning after the one served last, then
-- by seq. No fence: this is where the token is made, with the mark of a request at its end if one is given. Every step
-- is a look into the claim index, so nothing that is not claimable costs anything. A lane is read only as far as its
-- share; what may follow the last job read of a lane is unknown, and the order is cut there: the caller asks again with
-- a larger share. What is locked is then found by its place on the page rather than by the index once more. Jobs below the floor are not looked for: it is 0 unless dead
-- entries in front of the lanes cannot be cleaned up, and then they are at least not looked at one by one.
with recursive clock as materialized (
    select coalesce(cast(:now as bigint), windlass.now()) as now,
           -- Where a turn is named, it is ours until this is committed; or another's, and then nothing is taken.
           cast(:turn as text) is null
           or pg_try_advisory_xact_lock(hashtextextended('windlass.claim ' || cast(:turn as text), 0)) as ours
),
later as materialized (
    select min(first.run_at) as run_at
      from unnest(cast(:types as text[])) as w (type),
           lateral (select j.run_at
                      from windlass.jobs as j
                     where j.state = 'pending' and j.due < 1 and j.type = w.type
                     order by j.run_at limit 1) as first
),
-- Wanted jobs whose time has come stand aside until they are promoted: then nothing is taken yet.
wanted as materialized (
    select w.type, w.known, w.after
      from later, clock,
           unnest(cast(:types as text[]), cast(:versions as integer[]), cast(:afters as text[])) as w (type, known, after)
     where clock.ours and (cast(:promoted as boolean) or later.run_at is null or later.run_at > clock.now)
),
version (type, after, version) as (
    select w.type, w.after, first.version
      from wanted as w,
           lateral (select j.schema_version as version
                      from windlass.jobs as j
                     where j.due = 1 and j.type = w.type and j.schema_version <= w.known
                       and j.seq >= cast(:floor as bigint)
                     order by j.type desc, j.schema_version desc limit 1) as first
     union all
    select v.type, v.after, next.version
      from version as v,
           lateral (select j.schema_version as version
                      from windlass.jobs as j
                     where j.due = 1 and j.type = v.type and j.schema_version < v.version
                       and j.seq >= cast(:floor as bigint)
                     order by j.type desc, j.schema_version desc limit 1) as next
),
-- The head of each lane. What was claimed before it leaves dead entries in the index until the next vacuum, so they
-- are walked over here once, and what follows begins at the head.
lane as materialized (
    select v.type, v.after, v.version, head.priority, head.tenant, head.seq
      from version as v,
           lateral (select j.priority, j.tenant, j.seq
                      from windlass.jobs as j
                     where j.due = 1 and j.type = v.type and j.schema_version = v.version
                       and j.seq >= cast(:floor as bigint)
                     order by j.type, j.schema_version, j.priority desc, j.tenant, j.seq limit 1) as head
),
top as materialized (
    select max(priority) as priority from lane
),
turn (type, version, after, head, tenant, wrapped, number, floor) as (
    select l.type, l.version, l.after, l.tenant, first.tenant, first.tenant <= l.after, 1,
           case first.tenant when l.tenant then l.seq else 0 end
      from top join lane as l using (priority),
           lateral (
               (select l.tenant where l.tenant > l.after)
               union all
               (select j.tenant
                  from windlass.jobs as j
                 where j.due = 1 and j.type = l.type and j.schema_version = l.version and j.priority = top.priority
                   and j.tenant > l.after and j.seq >= cast(:floor as bigint)
                 order by j.type, j.schema_version, j.priority desc, j.tenant limit 1)
               union all
               (select l.tenant)
               limit 1) as first
     union all
    select t.type, t.version, t.after, t.head, next.tenant, t.wrapped or next.tenant <= t.after, t.number + 1, 0
      from turn as t, top,
           lateral (
               (select j.tenant
                  from windlass.jobs as j
                 where j.due = 1 and j.type = t.type and j.schema_version = t.version and j.priority = top.priority
                   and j.tenant > t.tenant and j.seq >= cast(:floor as bigint)
                 order by j.type, j.schema_version, j.priority desc, j.tenant limit 1)
               union all
               (select t.head where not t.wrapped and t.head <= t.after)
               limit 1) as next
     where t.number < cast(:limit as integer)
       and (not t.wrapped or next.tenant <= t.after)
),
-- Several lanes are read further than their even share, since they are rarely even; so is one whose next jobs others
-- may be taking at this moment.
share as materialized (
    select cast(ceil(cast(:limit as integer) * cast(:slack as double precision) * least(2, count(*)) / greatest(1, count(*))) + 3 as integer) as jobs
      from turn
),
stretch as materialized (
    select t.tenant, t.wrapped,
           array(select j.seq
                   from windlass.jobs as j
                  where j.due = 1 and j.type = t.type and j.schema_version = t.version
                    and j.priority = top.priority and j.tenant = t.tenant and j.seq >= greatest(t.floor, cast(:floor as bigint))
                    and j.run_at <= (select now from clock)
                  order by j.type, j.schema_version, j.priority desc, j.tenant, j.seq
                  limit (select jobs from share)) as seqs
      from top, turn as t
),
known as materialized (
    select s.*, min(s.seqs[share.jobs]) over (partition by s.tenant) as known from stretch as s, share
),
ranked as materialized (
    select s.tenant, s.wrapped, s.known, job.seq, row_number() over (partition by s.tenant order by job.seq) as round
      from known as s, unnest(s.seqs) as job (seq)
     where s.known is null or job.seq <= s.known
),
cut as materialized (
    select max(round) + 1 as round, bool_and(wrapped) as wrapped, tenant
      from ranked
     where known is not null
     group by tenant
     order by 1, 2, 3
     limit 1
),
-- One lane alone stands in its order already.
placed as materialized (
    (select job.seq, job.place
       from stretch as s, unnest(s.seqs) with ordinality as job (seq, place)
      where (select count(*) from turn) = 1
      limit ceil(cast(:limit as integer) * cast(:slack as double precision)))
     union all
    (select r.seq, row_number() over (order by r.round, r.wrapped, r.tenant, r.seq) as place
       from ranked as r
      where (select count(*) from turn) > 1
        and not exists (select 1 from cut where (r.round, r.wrapped, r.tenant) >= (cut.round, cut.wrapped, cut.tenant))
      order by place
      limit ceil(cast(:limit as integer) * cast(:slack as double precision)))
),
-- Still due? Asked for each by its number, and not in the words of the claim index: where few jobs are alive among many
-- dead, the planner takes an index for small and would read all of it.
picked as materialized (
    select j.spot, p.place
      from (select * from placed order by place) as p,
           lateral (select j.ctid as spot
                      from windlass.jobs as j
                     where j.seq = p.seq and j.due > 0
                       for update skip locked) as j
     limit cast(:limit as integer)
),
taken as (
    update windlass.jobs as j
       set state = 'processing',
           due = 0,
           attempts = j.attempts + 1,
           claims = j.claims + 1,
           worker = :worker,
           token = case when cast(:mark as text) is null then gen_random_uuid()
                        else cast(left(replace(cast(gen_random_uuid() as text), '-', ''), 16) || :mark as uuid) end,
           lease_until = clock.now + cast(:lease as bigint),
           started_at = clock.now,
           updated_at = clock.now
      from picked, clock
     where j.ctid = picked.spot
    returning picked.place, j.seq, j.id, j.type, j.priority, j.payload, j.schema_version, j.key, j.caller, j.tenant,
              j.traceparent, j.max_attempts, j.attempts, j.claims, j.snoozes, j.interruptions, j.losses, j.replay_count,
              j.created_at, j.enqueued_at, j.run_at, j.finished_at, j.request, j.error, j.history, j.changes, j.token
),
state as (
    select clock.now as clock, clock.ours, later.run_at as later,
           exists (select 1 from stretch, share where stretch.seqs[share.jobs] is not null)
           or (select count(*) from taken) < least(cast(:limit as integer), (select count(*) from placed))
           or exists (select 1 from lane, top
                       where lane.priority < top.priority
                          or exists (select 1 from windlass.jobs as j
                                      where j.due = 1 and j.type = lane.type and j.schema_version = lane.version
                                        and j.priority < top.priority and j.seq >= cast(:floor as bigint))) as more,
           case when (select max(number) from turn) < cast(:limit as integer) then (select min(seqs[1]) from stretch) end as head,
           pg_stat_get_dead_tuples('windlass.jobs'::regclass) as dead
      from clock cross join later
)
-- Side by side, never together: one row says how it stands, the others are the jobs.
select * from state full join taken on false;
