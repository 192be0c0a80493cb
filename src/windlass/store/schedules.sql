-- name: workers
-- Every worker, newest first.
select * from windlass.workers order by started_at desc, id;

-- name: workers_named
-- Workers whose id begins so, newest first.
select * from windlass.workers where substr(id, 1, length(:prefix)) = :prefix order by started_at desc, id;

-- name: declarations
-- Every definition of a schedule that code declares, or has declared.
select name, digest, type, definition, first_at, seen_at from windlass.declarations;

-- name: note_declaration
-- A process that declares this definition was seen. A known one keeps its place in the order of definitions.
insert into windlass.declarations (name, digest, type, definition, first_at, seen_at)
values (:name, :digest, :type, :definition, :now, :now)
on conflict (name, digest) do update set seen_at = excluded.seen_at;

-- name: forget_declarations
-- Definitions that nobody has declared for long.
delete from windlass.declarations where seen_at < :before and first_at < :before;

-- name: end_declaration
-- Every process that declared this definition has ended.
update windlass.declarations set seen_at = 0 where name = :name and digest = :digest;

-- name: schedule
-- A schedule by name.
select * from windlass.schedules where name = :name;

-- name: remove_schedule
-- A schedule goes.
delete from windlass.schedules where name = :name;

-- name: remove_fires
-- What became of a schedule's fire times goes with it; the jobs stay.
delete from windlass.fires where schedule = :name;

-- name: remove_declarations
-- An operator removes a schedule that no live process declares.
delete from windlass.declarations where name = :name;

-- name: orphan_schedule
-- No live worker has the schedule's function: it keeps its place and does not fire. Null: one has it again.
update windlass.schedules set orphaned_at = :orphaned_at where name = :name;

-- name: due_schedules
-- Schedules whose time has come, the longest waiting first; those that could not be fired before come last, so that they
-- stand in nobody's way.
select * from windlass.schedules
 where paused = 0 and withdrawn = 0 and orphaned_at is null and next_at <= :now
 order by problem is not null, next_at
 limit :limit;

-- name: due_schedules [postgres]
-- Schedules whose time has come, the longest waiting first; those that could not be fired before come last, so that they
-- stand in nobody's way. Those that somebody else fires are left to them.
select * from windlass.schedules
 where paused = 0 and withdrawn = 0 and orphaned_at is null and next_at <= :now
 order by problem is not null, next_at
 limit :limit
   for update skip locked;

-- name: trim_fires
-- Keep the last fire times of a schedule, and those whose runs have not ended: the next one asks for them. Of all that came
-- before, only some are looked at: those that have just left the last ones, and the oldest, which end first. So a schedule
-- whose jobs wait for long costs no more than any other.
with kept as materialized (
    select fire_at from windlass.fires where schedule = :schedule order by fire_at desc limit 1 offset :keep
),
oldish as materialized (
    select * from (select id, job_id from windlass.fires
                    where schedule = :schedule and fire_at < (select fire_at from kept)
                    order by fire_at desc limit :limit) as newest
     union
    select * from (select id, job_id from windlass.fires
                    where schedule = :schedule and fire_at < (select fire_at from kept)
                    order by fire_at limit :limit) as oldest
)
delete from windlass.fires
 where id in (select oldish.id
                from oldish
               where not exists (select 1 from windlass.jobs as j
                                  where j.id = oldish.job_id and j.state in ('pending', 'processing')));

-- name: advance_schedule
-- Fire times up to `next_at` are dealt with. The old value is the fence: whoever is too late changes nothing.
update windlass.schedules
   set next_at = :next_at, problem = null
 where name = :name and next_at = :expected and paused = 0 and withdrawn = 0;

-- name: unended_run
-- A run of a schedule that has not ended. A run that waits for a release that may never come back does not count: its
-- schema version is newer than the schedule's, or it is unreadable and the next run has another payload. With the same
-- payload it counts: whoever can read the next run can read this one.
select f.job_id
  from windlass.fires as f
  join windlass.schedules as s on s.name = f.schedule
  join windlass.jobs as j on j.id = f.job_id
 where f.schedule = :schedule
   and (j.state = 'processing'
        or (j.state = 'pending' and j.schema_version <= s.schema_version
            and ((j.type = s.type and j.schema_version = s.schema_version and cast(j.payload as text) = s.payload)
                 or not exists (select 1 from windlass.unread as u
                                 where u.seq = j.seq and u.aside = 1 and u.run_at = j.run_at and j.due = 0))))
 limit 1;

-- name: note_fire
-- What became of a fire time.
insert into windlass.fires (id, schedule, fire_at, outcome, until_at, job_id, made_by, noted_at)
values (:id, :schedule, :fire_at, :outcome, :until_at, :job_id, :made_by, :now)
on conflict do nothing;

-- name: note_problem
-- Why a schedule could not be fired.
update windlass.schedules set problem = :problem where name = :name;

-- name: next_fire
-- When the next schedule fires.
select min(next_at) as next_at from windlass.schedules where paused = 0 and withdrawn = 0 and orphaned_at is null;

-- name: orphaned_schedules
-- Schedules that do not fire because no live worker has their function.
select name, type from windlass.schedules where orphaned_at is not null order by name;

-- name: lock_declarations
-- There is one writer at a time, so nobody else changes declarations before the commit.
select 1 as locked;

-- name: lock_declarations [postgres]
-- Declarations are compared and changed by one process at a time, until the commit.
select pg_advisory_xact_lock(hashtextextended('windlass.declarations', 0));

-- name: lock_schedule
-- A schedule by name, for a change that depends on what it is.
select * from windlass.schedules where name = :name;

-- name: lock_schedule [postgres]
-- A schedule by name, for a change that depends on what it is: nobody else changes or fires it meanwhile.
select * from windlass.schedules where name = :name for update;

-- name: add_schedule
-- Enter a schedule. No row: somebody has that name.
insert into windlass.schedules
       (name, type, payload, schema_version, cron, every, tz, catch_up, overlap, jitter, priority, max_attempts,
        tenant, source, next_at, created_at, updated_at)
values (:name, :type, :payload, :schema_version, :cron, :every, :tz, :catch_up, :overlap, :jitter, :priority,
        :max_attempts, :tenant, :source, :next_at, :now, :now)
on conflict (name) do nothing
returning name;

-- name: withdraw_schedule
-- Code declares this schedule no more: it is kept to be seen, and fires no more.
update windlass.schedules set withdrawn = 1, updated_at = :now where name = :name;

-- name: schedules
-- Every schedule.
select * from windlass.schedules order by name;

-- name: pause_schedule
-- Hold a schedule, or let it go on from its next fire time.
update windlass.schedules
   set paused = :paused, paused_by = :paused_by, paused_at = :paused_at, next_at = :next_at, updated_at = :now
 where name = :name;

-- name: change_schedule
-- Give a schedule other times or another job; whether it is paused is the operator's.
update windlass.schedules
   set type = :type, payload = :payload, schema_version = :schema_version, cron = :cron, every = :every, tz = :tz,
       catch_up = :catch_up, overlap = :overlap, jitter = :jitter, priority = :priority,
       max_attempts = :max_attempts, tenant = :tenant, source = :source, next_at = :next_at, withdrawn = 0,
       orphaned_at = null, problem = null, updated_at = :now
 where name = :name;

-- name: fires_of
-- The last fire times of a schedule, newest first.
select * from windlass.fires where schedule = :schedule order by fire_at desc, id desc limit :limit;
