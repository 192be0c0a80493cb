-- name: probe_of
-- Which job was let through an open breaker, and still runs?
select j.id
  from windlass.breakers as b
       join windlass.jobs as j on j.seq = b.probe_seq and j.token = b.probe_token
 where b.name = :name;

-- name: limited
-- Which jobs run under any limit? A few of them, to be named.
select id from windlass.jobs where state = 'processing' and limit_key is not null limit :limit;

-- name: limited_key
-- Which jobs run that share a key? A few of them, to be named.
select id
  from windlass.jobs
 where state = 'processing' and limit_key is not null and limit_key = :limit_key
 limit :limit;

-- name: limited_type
-- Which jobs of a limited type run? A few of them, to be named.
select id
  from windlass.jobs
 where state = 'processing' and limit_key is not null and type = :type
 limit :limit;

-- name: limited_tenant
-- Which jobs of a limited type run for one tenant?
select id
  from windlass.jobs
 where state = 'processing' and limit_key is not null and type = :type and tenant = :tenant
 limit :limit;

-- name: unique_of
-- Of which name shall a job be the only one?
select unique_name from windlass.jobs where seq = :seq;

-- name: unique_holder
-- Which job of a caller and tenant holds a name? A job that is unique until its start holds it until the next claim.
select seq, id, type, state, key
  from windlass.jobs
 where unique_name is not null and unique_name = :name and caller = :caller and tenant = :tenant
   and state in ('pending', 'processing') and (unique_until = 'done' or claims = unique_claims);

-- name: parents_states
-- For whom does this job wait, and how do they stand? All at once: there may be a thousand, and one that is dead tells more
-- than all the others. One without a state is gone.
select d.parent_id, coalesce(j.state, a.state) as state
  from windlass.dependencies as d
  left join windlass.jobs as j on j.id = d.parent_id
  left join windlass.archive as a on a.id = d.parent_id
 where d.child_id = :child_id
 order by d.parent_id;

-- name: ahead_of_others [postgres]
-- How many due jobs of other types come before one of this priority and age: of a higher priority, and older ones of the
-- same? Each counted, and looked for, up to a bound.
select cast(coalesce(sum(higher.jobs), 0) as bigint) as higher, cast(coalesce(sum(older.jobs), 0) as bigint) as older
  from json_each_text(cast(:types as json)) as w (type, version)
       cross join lateral (select count(*) as jobs
                             from (select 1
                                     from windlass.jobs as j
                                    where j.due = 1 and j.type = w.type and j.schema_version = cast(w.version as integer)
                                      and j.priority > :priority
                                    limit :limit) as j) as higher
       cross join lateral (select count(*) as jobs
                             from (select j.seq
                                     from windlass.jobs as j
                                    where j.due = 1 and j.type = w.type and j.schema_version = cast(w.version as integer)
                                      and j.priority = :priority
                                    order by j.type, j.schema_version, j.priority desc, j.tenant, j.seq
                                    limit :limit) as lane
                            where lane.seq < :seq) as older;

-- name: ahead_of_others [sqlite]
-- How many due jobs of other types come before one of this priority and age: of a higher priority, and older ones of the
-- same? Each counted, and looked for, up to a bound.
select coalesce(sum((select count(*)
                       from (select 1
                               from windlass.jobs as j
                              where j.due = 1 and j.type = w.key and j.schema_version = w.value
                                and j.priority > :priority
                              limit :limit))), 0) as higher,
       coalesce(sum((select count(*)
                       from (select j.seq
                               from windlass.jobs as j
                              where j.due = 1 and j.type = w.key and j.schema_version = w.value
                                and j.priority = :priority
                              order by j.tenant, j.seq
                              limit :limit) as lane
                      where lane.seq < :seq)), 0) as older
  from json_each(:types) as w;

-- name: ahead_higher
-- How many due jobs of a type have a higher priority, counted up to a bound?
select count(*) as count
  from (select 1
          from windlass.jobs
         where due = 1 and type = :type and schema_version = :version and priority > :priority
         limit :limit) as higher;

-- name: ahead_in_lane
-- How many due jobs stand in a lane before a place in it, counted up to a bound?
select count(*) as count
  from (select 1
          from windlass.jobs
         where due = 1 and type = :type and schema_version = :version and priority = :priority and tenant = :tenant
           and seq < :seq
         limit :limit) as earlier;

-- name: lane_first_tenant
-- The first tenant of all and its first job: where the turn begins again.
select tenant, seq
  from windlass.jobs
 where due = 1 and type = :type and schema_version = :version and priority = :priority and run_at <= :now
 order by type, schema_version, priority desc, tenant, seq
 limit 1;

-- name: lane_turn
-- The next tenants in turn who have due jobs of a type and priority, each with the first of them. A loose scan: a look for
-- each tenant, however many jobs it has.
with recursive turn (tenant, number) as (
    select (select j.tenant
              from windlass.jobs as j
             where j.due = 1 and j.type = :type and j.schema_version = :version and j.priority = :priority
               and j.tenant > :after
             order by j.type, j.schema_version, j.priority desc, j.tenant
             limit 1), 1
     union all
    select (select j.tenant
              from windlass.jobs as j
             where j.due = 1 and j.type = :type and j.schema_version = :version and j.priority = :priority
               and j.tenant > turn.tenant
             order by j.type, j.schema_version, j.priority desc, j.tenant
             limit 1), turn.number + 1
      from turn
     where turn.tenant is not null and turn.number < :limit
)
select turn.tenant,
       (select j.seq
          from windlass.jobs as j
         where j.due = 1 and j.type = :type and j.schema_version = :version and j.priority = :priority
           and j.tenant = turn.tenant and j.run_at <= :now
         order by j.type, j.schema_version, j.priority desc, j.tenant, j.seq
         limit 1) as seq
  from turn
 where turn.tenant is not null;

-- name: lane_version
-- The newest schema version below a given one of which a type has due jobs.
select schema_version
  from windlass.jobs
 where due = 1 and type = :type and schema_version < :below
 order by schema_version desc
 limit 1;

-- name: ended_lately
-- How many jobs of each type ended lately, among the newest: history must not make this slow.
select type, count(*) as count, min(finished_at) as since
  from (select type, finished_at from windlass.archive order by seq desc limit :limit) as newest
 where finished_at > :since
 group by type;

-- name: failed_lately
-- The live jobs whose last attempt failed, those that changed last first.
select *
  from windlass.jobs
 where reason is not null and updated_at > :since
 order by updated_at desc
 limit :limit;

-- name: dead_lately
-- The jobs that died last, with what they died of.
select id, type, reason, error, finished_at
  from windlass.jobs
 where state = 'dead'
 order by finished_at desc
 limit :limit;

-- name: dead_lately_of_type
-- The jobs of one type that died last, with what they died of. By number, which is the index that knows types.
select id, type, reason, error, finished_at
  from windlass.jobs
 where state = 'dead' and type = :type
 order by seq desc
 limit :limit;

-- name: count_unpromoted
-- Jobs whose time came before that moment, and which still do not stand in the claim index: nobody can see them there.
select type, count(*) as count, min(run_at) as since
  from (select type, run_at
          from windlass.jobs
         where state = 'pending' and due = 0 and run_at <= :before
         order by run_at
         limit :limit) as late
 group by type;

-- name: ticks
-- When what must happen again and again last succeeded.
select name, at, who from windlass.ticks order by name;

-- name: verdicts
-- What came of all checks, by type.
select type, matched, mismatched, unknown, mismatch_at, mismatch_job from windlass.verdicts order by type;

-- name: waiting_checks
-- Checks that were not made yet, by type, and when the first of them was due.
select type, count(*) as count, min(first_due_at) as since from windlass.checks group by type;

-- name: note_ticks [postgres]
-- What must happen again and again has succeeded; all that one process has to tell, in one statement. In the order of
-- the names, so that two never wait for each other.
insert into windlass.ticks (name, at, who)
select key, coalesce(cast(:now as bigint), windlass.now()) - cast(value as bigint), cast(:who as text)
  from json_each_text(cast(:ages as json)) order by key
on conflict (name) do update set at = excluded.at, who = excluded.who;

-- name: note_ticks [sqlite]
-- What must happen again and again has succeeded; all that one process has to tell, in one statement.
insert into windlass.ticks (name, at, who)
select key, :now - value, :who from json_each(:ages) where true
on conflict (name) do update set at = excluded.at, who = excluded.who;

-- name: add_check
-- The outcome of a job that ends now is to be checked later.
insert into windlass.checks (job_id, type, sampled_at, first_due_at, due_at)
values (:job_id, :type, :now, :due_at, :due_at)
on conflict (job_id) do nothing;

-- name: any_check
-- Is there anything to check of this type?
select 1 from windlass.checks where type = :type and due_at <= :now limit 1;

-- name: take_checks [postgres]
-- Take checks that are due; nobody else takes them before `again`.
update windlass.checks as c
   set due_at = :again, takes = c.takes + 1
  from (select job_id
          from windlass.checks
         where type = :type and due_at <= :now
         order by due_at
         limit :limit
           for update skip locked) as due
 where c.job_id = due.job_id
returning c.job_id, c.type, c.takes;

-- name: take_checks [sqlite]
-- Take checks that are due; nobody else takes them before `again`.
update windlass.checks
   set due_at = :again, takes = takes + 1
 where job_id in (
     select job_id from windlass.checks where type = :type and due_at <= :now order by due_at limit :limit
 )
returning job_id, type, takes;

-- name: put_off_check
-- A check that could not be made is made again; the fence is how often it was taken.
update windlass.checks set due_at = :again where job_id = :job_id and takes = :takes;

-- name: end_check
-- A check is over, if it is still whose it was.
delete from windlass.checks where job_id = :job_id and takes = :takes;

-- name: note_verdict
-- What came of one check.
insert into windlass.verdicts (type, matched, mismatched, unknown, mismatch_at, mismatch_job)
values (:type, :matched, :mismatched, :unknown, :mismatch_at, :mismatch_job)
on conflict (type) do update
   set matched = windlass.verdicts.matched + excluded.matched,
       mismatched = windlass.verdicts.mismatched + excluded.mismatched,
       unknown = windlass.verdicts.unknown + excluded.unknown,
       mismatch_at = coalesce(excluded.mismatch_at, windlass.verdicts.mismatch_at),
       mismatch_job = coalesce(excluded.mismatch_job, windlass.verdicts.mismatch_job);
