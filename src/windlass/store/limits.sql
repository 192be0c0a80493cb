-- name: lane_alone
-- The next due jobs of a type if all that are due stand in one lane: the first and the last of all tell. No row: there are
-- several lanes, or there is nothing; then no type is looked for, so that nothing is walked through. The lane is not named
-- once more: with nothing left to order by but seq, the planner would go through the jobs of all types.
with first as materialized (
    select schema_version, priority, tenant
      from windlass.jobs
     where due = 1 and type = :type
     order by type, schema_version, priority desc, tenant
     limit 1
),
last as materialized (
    select schema_version, priority, tenant
      from windlass.jobs
     where due = 1 and type = :type
     order by type desc, schema_version desc, priority, tenant desc
     limit 1
)
select seq, priority, tenant
  from windlass.jobs
 where due = 1
   and type = (select cast(:type as text)
                 from first join last using (schema_version, priority, tenant)
                where schema_version <= :known)
   and run_at <= :now
 order by type, schema_version, priority desc, tenant, seq
 limit :limit;

-- name: lane_lowest
-- The lowest priority at which a type has due jobs.
select priority
  from windlass.jobs
 where due = 1 and type = :type and schema_version = :version
 order by type desc, schema_version desc, priority
 limit 1;

-- name: lane_priority
-- The highest priority below a given one at which a type has due jobs.
select priority
  from windlass.jobs
 where due = 1 and type = :type and schema_version = :version and priority < :below
 order by priority desc
 limit 1;

-- name: lane_jobs
-- A lane's next jobs in the order of their arrival. The due flag is a hint; what decides is run_at.
select seq
  from windlass.jobs
 where due = 1 and type = :type and schema_version = :version and priority = :priority and tenant = :tenant and seq > :after
   and run_at <= :now
 order by seq
 limit :limit;

-- name: adopt [postgres]
-- Running jobs of a type that were claimed before its limit was known count under it from now on. No fence: nothing that
-- their workers know of them is changed.
update windlass.jobs
   set limit_key = cast(:limit_key as text)
 where state = 'processing' and type = :type and limit_key is distinct from cast(:limit_key as text);

-- name: adopt [sqlite]
-- Running jobs of a type that were claimed before its limit was known count under it from now on. No fence: nothing that
-- their workers know of them is changed.
update windlass.jobs
   set limit_key = :limit_key
 where state = 'processing' and type = :type and limit_key is not :limit_key;

-- name: hold_permits
-- The work of an attempt goes on after it is settled: it keeps its permits, if it has any. Written before the settle, and
-- fenced by the token: of a lease that is lost nothing is kept.
insert into windlass.held (token, worker, type, tenant, limit_key)
select token, worker, type, tenant, limit_key
  from windlass.jobs
 where seq = :seq and token = :token and limit_key is not null
on conflict (token) do nothing;

-- name: let_go
-- The work has ended.
delete from windlass.held where token = :token;

-- name: rivals_first [postgres]
-- Which is the first job of these types that has a given priority? Jobs that were claimed lately lie before it in the index,
-- so this is asked only where it matters. Only of the newest schema version that is known: it is asked for the order alone.
select min(head.seq) as head
  from json_each_text(cast(:types as json)) as w (type, version)
       cross join lateral (select j.seq
                             from windlass.jobs as j
                            where j.due = 1 and j.type = w.type and j.schema_version = cast(w.version as integer)
                              and j.priority = :priority
                            order by j.type, j.schema_version, j.priority desc, j.tenant, j.seq
                            limit 1) as head;

-- name: rivals_first [sqlite]
-- Which is the first job of these types that has a given priority? Asked only where it matters. Only of the newest schema
-- version that is known: it is asked for the order alone.
select min((select j.seq
              from windlass.jobs as j
             where j.due = 1 and j.type = w.key and j.schema_version = w.value and j.priority = :priority
             order by j.tenant, j.seq
             limit 1)) as head
  from json_each(:types) as w;

-- name: rivals_above [postgres]
-- How many jobs of these types have a higher priority than a given one, counted up to a bound? Only of the newest schema
-- version that is known: it is asked for the order alone.
select cast(sum(ahead.jobs) as bigint) as ahead
  from json_each_text(cast(:types as json)) as w (type, version)
       cross join lateral (select count(*) as jobs
                             from (select 1
                                     from windlass.jobs as j
                                    where j.due = 1 and j.type = w.type and j.schema_version = cast(w.version as integer)
                                      and j.priority > :priority
                                    limit :limit) as j) as ahead;

-- name: rivals_above [sqlite]
-- How many jobs of these types have a higher priority than a given one, counted up to a bound? Only of the newest schema
-- version that is known: it is asked for the order alone.
select sum((select count(*)
              from (select 1
                      from windlass.jobs as j
                     where j.due = 1 and j.type = w.key and j.schema_version = w.value and j.priority > :priority
                     limit :limit))) as ahead
  from json_each(:types) as w;

-- name: claim_limited [postgres]
-- Take the picked jobs of a limited type: running, they hold its permits. The limit is locked, yet who does not know of it
-- may have taken some of them. No fence: this is where the token is made, with the mark of a request at its end.
with clock as materialized (
    select cast(:now as bigint) as now
),
picked as materialized (
    select j.spot
      from json_array_elements_text(cast(:picked as json)) as p (seq),
           lateral (select j.ctid as spot
                      from windlass.jobs as j
                     where j.seq = cast(p.seq as bigint) and j.due > 0
                       for update skip locked) as j
)
update windlass.jobs as j
   set {claim_set},
       limit_key = :limit_key
  from picked, clock
 where j.ctid = picked.spot
returning j.*;

-- name: claim_limited [sqlite]
-- Take the picked jobs of a limited type: running, they hold its permits. One writer at a time, so nobody can have taken
-- them since they were picked. No fence: this is where the token is made, with the mark of a request at its end.
update windlass.jobs
   set {claim_set},
       limit_key = :limit_key
 where seq in (select value from json_each(:picked))
returning *;

-- name: limit
-- When does a limit's rate have a token? A look, which locks nothing.
select next_at from windlass.limits where name = :name;

-- name: count_limited
-- How many jobs run under any limit, counted up to a bound? Work that outlives its attempt counts while its worker is there.
select count(*) as count
  from (select 1 from windlass.jobs where state = 'processing' and limit_key is not null
         union all
        select 1
          from windlass.held as h join windlass.workers as w on w.id = h.worker
         where w.state in ('running', 'draining')
         limit :limit) as running;

-- name: count_limited_key
-- How many jobs run that share a key, counted up to a bound? Work that outlives its attempt counts while its worker is there.
select count(*) as count
  from (select 1
          from windlass.jobs
         where state = 'processing' and limit_key is not null and limit_key = :limit_key
         union all
        select 1
          from windlass.held as h join windlass.workers as w on w.id = h.worker
         where h.limit_key = :limit_key and w.state in ('running', 'draining')
         limit :limit) as running;

-- name: count_limited_type
-- How many jobs of a limited type run, counted up to a bound? Work that outlives its attempt counts while its worker is there.
select count(*) as count
  from (select 1
          from windlass.jobs
         where state = 'processing' and limit_key is not null and type = :type
         union all
        select 1
          from windlass.held as h join windlass.workers as w on w.id = h.worker
         where h.type = :type and w.state in ('running', 'draining')
         limit :limit) as running;

-- name: spend_rate
-- Jobs start under a rate: when may the next one?
update windlass.limits set next_at = :next_at where name = :name;

-- name: return_token
-- A job was claimed under a rate and never started: the next one may start earlier by as much.
update windlass.limits set next_at = next_at - :interval where name = :name;

-- name: begin_probe
-- One job is let through an open breaker; the next one not before the given time, nor before this one has ended.
update windlass.breakers
   set probe_at = :probe_at, probe_seq = :seq, probe_token = :token
 where name = :name and state = 'open';

-- name: lock_breaker
-- May a probe start? One writer at a time, so nobody else starts one meanwhile.
select b.state, b.by_hand, b.probe_at,
       exists (select 1 from windlass.jobs as j where j.seq = b.probe_seq and j.token = b.probe_token) as probing
  from windlass.breakers as b
 where b.name = :name;

-- name: lock_breaker [postgres]
-- May a probe start? Nobody else starts one before this transaction ends. No row: somebody asks at this moment.
select b.state, b.by_hand, b.probe_at,
       exists (select 1 from windlass.jobs as j where j.seq = b.probe_seq and j.token = b.probe_token) as probing
  from windlass.breakers as b
 where b.name = :name
   for update of b skip locked;

-- name: lock_limit
-- Where a limit's rate stands. One writer at a time, so nobody else counts meanwhile.
select next_at from windlass.limits where name = :name;

-- name: lock_limit [postgres]
-- Where a limit's rate stands; nobody else counts under it before this transaction ends. No row: somebody does now.
select next_at from windlass.limits where name = :name for update skip locked;

-- name: make_limit
-- A limit that nobody has counted under yet.
insert into windlass.limits (name) values (:name) on conflict (name) do nothing;

-- name: count_tenants
-- How many jobs of a limited type run for each tenant? Work that outlives its attempt counts while its worker is there.
select tenant, count(*) as count
  from (select tenant
          from windlass.jobs
         where state = 'processing' and limit_key is not null and type = :type
         union all
        select h.tenant
          from windlass.held as h join windlass.workers as w on w.id = h.worker
         where h.type = :type and w.state in ('running', 'draining')) as running
 group by tenant;
