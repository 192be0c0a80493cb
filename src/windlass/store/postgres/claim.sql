-- name: claim_few [postgres]
-- Take all due jobs if they are few, as a worker at rest finds them: in which order they start is then the caller's to say.
-- If there are more, or if some whose time has come stand aside yet, nothing is taken, and the caller asks by claim_batch,
-- which takes the server nearly twice as long to begin and to end. Only the order keeps the planner to the claim index. No
-- fence: this is where the token is made.
with clock as materialized (
    select coalesce(cast(:now as bigint), windlass.now()) as now
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
),
due as materialized (
    select j.spot
      from wanted as w,
           lateral (select j.ctid as spot
                      from windlass.jobs as j
                     where j.due = 1 and j.type = w.type and j.schema_version <= w.known
                       and j.seq >= cast(:floor as bigint) and j.run_at <= (select now from clock)
                     order by j.type, j.schema_version, j.priority desc, j.tenant, j.seq
                     limit cast(:few as integer) + 1
                       for update skip locked) as j
     limit cast(:few as integer) + 1
),
state as materialized (
    select clock.now as clock, later.run_at as later, pg_stat_get_dead_tuples('windlass.jobs'::regclass) as dead,
           (select count(*) from due) > cast(:few as integer) or coalesce(later.run_at <= clock.now, false) as more
      from clock, later
),
taken as (
    update windlass.jobs as j
       set {claim_set}
      from due, state, clock
     where j.ctid = due.spot and not state.more
    returning {j.taken}
)
-- Side by side, never together: one row says how it stands, the others are the jobs.
select * from state full join taken on false;

-- name: promote_types [postgres]
-- Scheduled jobs of these types whose time has come enter the claim index; those of others are not looked at. No fence:
-- pending jobs have no lease.
update windlass.jobs as j
   set due = 1
  from (select first.spot
          from unnest(cast(:types as text[])) as w (type),
               lateral (select j.ctid as spot
                          from windlass.jobs as j
                         where j.state = 'pending' and j.due < 1 and j.type = w.type and j.run_at <= :now
                         order by j.run_at
                         limit :limit
                           for update skip locked) as first) as come
 where j.ctid = come.spot;

-- name: offer_unread [postgres]
-- Jobs that are aside and that this release has not tried become due again. One that is no longer as it was left stays as
-- it is. No fence: pending jobs have no lease.
with picked as materialized (
    select u.seq, u.run_at
      from windlass.unread as u
     where u.aside = 1 and u.type = any(cast(:types as text[])) and strpos(u.readers, :reader) = 0
     order by u.type, u.readers, u.field, u.seq
     limit :limit
       for update skip locked
),
shown as (
    update windlass.unread as u set aside = 0 from picked where u.seq = picked.seq
)
update windlass.jobs as j
   set due = 1, run_at = coalesce(cast(:now as bigint), windlass.now())
  from picked
 where j.seq = picked.seq and j.state = 'pending' and j.due = 0 and j.run_at = picked.run_at;

-- name: claim_turn [postgres]
-- Wait until it is our turn to claim; it is ours until this transaction ends. Who has it may be frozen: after a while this fails, and
-- the caller claims without. What follows in the same transaction sees all that was claimed before. Tells whether there was
-- nobody to wait for.
select case when pg_try_advisory_xact_lock(turn.key) then true
            when set_config('lock_timeout', :patience, true) is not null then cast(pg_advisory_xact_lock(turn.key) as text) is null
       end as free
  from (select hashtextextended('windlass.claim ' || cast(:turn as text), 0) as key) as turn;

-- name: claim_batch [postgres]
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
       set {claim_set}
      from picked, clock
     where j.ctid = picked.spot
    returning {j.taken}
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

-- name: beat [postgres]
-- A sign of life, at the server's own time. One that was declared dead stays dead: it must take a new id.
update windlass.workers
   set beat = beat + 1,
       beat_at = coalesce(cast(:now as bigint), windlass.now()),
       state = :state,
       busy = :busy,
       held = :held,
       done = :done,
       failed = :failed,
       late = :late,
       deaf = cast(cast(:deaf as boolean) as integer),
       resident_bytes = cast(:resident_bytes as bigint),
       pools = coalesce(cast(:pools as text), pools)
 where id = :id and state in ('running', 'draining');

-- name: beat_waiting [postgres]
-- A sign of life of workers that wait for jobs, at the server's own time. One that was declared dead stays dead.
update windlass.workers
   set beat = beat + 1, beat_at = coalesce(cast(:now as bigint), windlass.now())
 where id in (select json_array_elements_text(cast(:ids as json))) and state in ('running', 'draining')
returning id;

-- name: look [postgres]
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
-- Who has tried the jobs that are aside: a walk along the index from one set of readers to the next.
kinds (type, readers) as (
    select first.*
      from wanted as w,
           lateral (select u.type, u.readers
                      from windlass.unread as u
                     where u.aside = 1 and u.type = w.type
                     order by u.readers limit 1) as first
     union all
    select next.*
      from kinds as k,
           lateral (select u.type, u.readers
                      from windlass.unread as u
                     where u.aside = 1 and u.type = k.type and u.readers > k.readers
                     order by u.readers limit 1) as next
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
       (select min(s.next_at) from windlass.schedules as s
         where s.paused = 0 and s.withdrawn = 0 and s.orphaned_at is null) as fires,
       coalesce((select r.value from windlass.revisions as r where r.name = 'flow'), 0) as revision,
       exists (select 1 from kinds where cast(:reader as text) <> '' and strpos(kinds.readers, :reader) = 0) as unread
  from clock, later;

-- name: extend_batch [postgres]
-- Move the end of many leases. The token is the fence: who lost a lease moves nothing. A row that is locked is being
-- settled, or waited for; the next extension comes soon.
with given as materialized (
    select * from unnest(cast(:seqs as bigint[]), cast(:tokens as uuid[])) as g (seq, token)
),
clock as materialized (
    select coalesce(cast(:now as bigint), windlass.now()) + cast(:by as bigint) as until
),
locked as materialized (
    select j.spot, g.token
      from (select seq, token from given order by seq) as g,
           lateral (select j.ctid as spot
                      from windlass.jobs as j
                     where j.seq = g.seq and j.token = g.token
                       for update skip locked) as j
)
update windlass.jobs as j
   set lease_until = clock.until
  from locked, clock
 where j.ctid = locked.spot and j.token = locked.token
returning j.token, j.lease_until;

-- name: look_at_limits [postgres]
-- Which restricted types have due jobs, and how do their limits stand? One look that locks nothing. Of a type: whether
-- anything is due, and when the next scheduled job is. Of a limit: how many run, counted up to a bound, and when its rate has
-- a token.
with clock as materialized (
    select coalesce(cast(:now as bigint), windlass.now()) as now
)
select clock.now as clock, w.type as name, cast(null as bigint) as running,
       exists (select 1 from windlass.jobs as j where j.due = 1 and j.type = w.type and j.schema_version <= w.known) as due,
       (select j.run_at
          from windlass.jobs as j
         where j.state = 'pending' and j.due < 1 and j.type = w.type
         order by j.run_at
         limit 1) as at
  from clock, unnest(cast(:types as text[]), cast(:versions as integer[])) as w (type, known)
 union all
select clock.now, l.name,
       case l.kind
           when '' then (select count(*)
                           from (select 1
                                   from windlass.jobs as j
                                  where j.state = 'processing' and j.limit_key is not null and j.type = l.owner
                                  limit l.most) as j)
           when 'key:' then (select count(*)
                               from (select 1
                                       from windlass.jobs as j
                                      where j.state = 'processing' and j.limit_key is not null and j.limit_key = l.owner
                                      limit l.most) as j)
           else (select count(*)
                   from (select 1
                           from windlass.jobs as j
                          where j.state = 'processing' and j.limit_key is not null
                          limit l.most) as j)
       end + (select count(*)
                from windlass.held as h join windlass.workers as w on w.id = h.worker
               where w.state in ('running', 'draining')
                 and (l.kind = '*' or (l.kind = '' and h.type = l.owner) or (l.kind = 'key:' and h.limit_key = l.owner))),
       null, (select s.next_at from windlass.limits as s where s.name = l.name)
  from clock,
       unnest(cast(:names as text[]), cast(:kinds as text[]), cast(:owners as text[]), cast(:mosts as bigint[]))
       as l (name, kind, owner, most);

-- name: lock_request [postgres]
-- Of claims that are one and the same request, one at a time until the commit, whichever server it was sent to.
select pg_advisory_xact_lock(hashtextextended('windlass.request ' || cast(:mark as text), 0));
