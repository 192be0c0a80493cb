-- name: promote
-- Scheduled jobs whose time has come enter the claim index. No fence: pending jobs have no lease.
update windlass.jobs
   set due = 1
 where seq in (
     select seq from windlass.jobs
      where state = 'pending' and due = 0 and run_at <= :now
      order by run_at
      limit :limit
 );

-- name: promote [postgres]
-- Scheduled jobs whose time has come enter the claim index. No fence: pending jobs have no lease.
update windlass.jobs
   set due = 1
 where seq in (
     select seq from windlass.jobs
      where state = 'pending' and due = 0 and run_at <= :now
      order by run_at
      limit :limit
        for update skip locked
 );

-- name: clock_watch
-- Since when the store's clock goes on steadily, and when that was last seen.
select since, seen_at, boot, uptime from windlass.clock_watch;

-- name: note_clock
-- What was seen of the store's clock.
insert into windlass.clock_watch (id, since, seen_at, boot, uptime)
values (1, :since, :now, :boot, :uptime)
on conflict (id) do update
   set since = excluded.since, seen_at = excluded.seen_at, boot = excluded.boot, uptime = excluded.uptime;

-- name: note_pruned [postgres]
-- Lines of the audit log for dead letters whose retention is over: work that nobody has done goes.
insert into windlass.audit (at, who, verb, kind, target, before, after, why)
select cast(:now as bigint), cast(:who as text), 'prune', 'job', gone ->> 'id',
       json_build_object('type', gone ->> 'type', 'state', 'dead')::text, null, ''
  from json_array_elements(cast(:gone as json)) as gone;

-- name: note_pruned [sqlite]
-- Lines of the audit log for dead letters whose retention is over: work that nobody has done goes.
insert into windlass.audit (at, who, verb, kind, target, before, after, why)
select :now, :who, 'prune', 'job', json_extract(value, '$.id'),
       json_object('type', json_extract(value, '$.type'), 'state', 'dead'), null, ''
  from json_each(:gone);

-- name: oldest_dead
-- When the first of the dead letters died.
select min(finished_at) as at from windlass.jobs where state = 'dead';

-- name: oldest_record [postgres]
-- When the oldest record of the archive ended, to the day: the first partition that is not empty. Asked of one after the
-- other, by a subquery with a limit: an `exists` would be planned as a join, which reads them all.
select days.begins as finished_at
  from (select (regexp_match(pg_get_expr(c.relpartbound, c.oid), 'FROM \(''?(\d+)''?\)'))[1]::bigint as begins
          from pg_inherits as i join pg_class as c on c.oid = i.inhrelid
         where i.inhparent = 'windlass.archive'::regclass) as days
 where (select 1 from windlass.archive as a
         where a.finished_at >= days.begins and a.finished_at < days.begins + 86400000000 limit 1) is not null
 order by days.begins
 limit 1;

-- name: oldest_record [sqlite]
-- When the oldest record of the archive ended.
select min(finished_at) as finished_at from windlass.archive;

-- name: settings
-- What operators have set.
select name, value from windlass.settings order by name;

-- name: setting
-- What an operator has set under one name.
select value from windlass.settings where name = :name;

-- name: reset_setting
-- Forget one setting.
delete from windlass.settings where name = :name;

-- name: put_setting
-- Set one thing.
insert into windlass.settings (name, value, updated_at)
values (:name, :value, :now)
on conflict (name) do update set value = excluded.value, updated_at = excluded.updated_at;

-- name: applied
-- The migrations that this database has seen.
select number, kind from windlass.schema order by number;

-- name: check_keys
-- A key without a record would refuse work for nothing. Not "not in", for which PostgreSQL reads the whole archive for each key.
select key, job_id
  from windlass.keys as held
 where not exists (select 1 from windlass.jobs as live where live.id = held.job_id)
   and not exists (select 1 from windlass.archive as ended where ended.id = held.job_id);

-- name: check_twice
-- A job is either live or archived, never both.
select id from windlass.jobs where id in (select id from windlass.archive);

-- name: free_answered [postgres]
-- Free the keys of requests that were answered with jobs whose records are gone.
delete from windlass.keys
 where answered = 1 and job_id = any (cast(:ids as uuid[]));

-- name: free_answered [sqlite]
-- Free the keys of requests that were answered with jobs whose records are gone.
delete from windlass.keys
 where answered = 1 and job_id in (select value from json_each(:ids));

-- name: has_schema [postgres]
-- Has this database our tables?
select to_regclass('windlass.schema') is not null as schema;

-- name: has_schema [sqlite]
-- Has this file our tables?
select exists (select 1 from sqlite_master where type = 'table' and name = 'windlass_schema') as schema;

-- name: move [postgres]
-- What this store remembers of a move to here.
select id, state, place, began_at, copied from windlass.moves order by began_at desc limit 1;

-- name: move [sqlite]
-- What this store remembers of its move to another.
select id, state, place, began_at from windlass.moves;

-- name: note_migration
-- A migration has been applied. One that runs statement by statement may be noted by whoever repeats it.
insert into windlass.schema (number, name, kind, applied_at) values (:number, :name, :kind, :now)
on conflict (number) do nothing;

-- name: prune_batches
-- Batches go when their jobs' records have gone.
delete from windlass.batches
 where finished_at < :ended and not exists (select 1 from windlass.jobs as j where j.batch = windlass.batches.id);

-- name: prune_checks
-- Checks that nobody made while there was still a record to look at.
delete from windlass.checks where sampled_at < :ended;

-- name: prune_dead
-- Retention ends for a batch of dead letters, oldest first. No fence: they have no lease.
delete from windlass.jobs
 where seq in (
     select seq from windlass.jobs
      where state = 'dead' and finished_at < :before
      order by finished_at
      limit :limit
 )
returning id, type, caller, key;

-- name: prune_dead [postgres]
-- Retention ends for a batch of dead letters, oldest first. No fence: they have no lease. The batch is chosen once.
with old as materialized (
    select seq
      from windlass.jobs
     where state = 'dead' and finished_at < :before
     order by finished_at
     limit :limit
       for update skip locked
)
delete from windlass.jobs
 where seq in (select seq from old)
returning id, type, caller, key;

-- name: prune_failures
-- Failures of long ago that nobody asked about since.
delete from windlass.failures where failed_at < :lately;

-- name: prune_flushes
-- Who has told nothing for so long will not repeat itself.
delete from windlass.flushes where told_at < :told;

-- name: prune_held
-- What workers held that are gone.
delete from windlass.held
 where worker not in (select id from windlass.workers where state in ('running', 'draining'));

-- name: prune_history
-- What happened in steps that nobody keeps any longer; totals stay.
delete from windlass.history
 where (step = 'minute' and at < :minutes) or (step = 'hour' and at < :hours) or (step = 'day' and at < :days);

-- name: prune_once
-- Side effects are remembered as long as the job may run again, and a while longer.
delete from windlass.once
 where noted_at < :ended and not exists (select 1 from windlass.jobs as j where j.id = windlass.once.job_id);

-- name: prune_progress
-- What jobs said of themselves goes once they have ended and a while has passed.
delete from windlass.progress
 where noted_at < :ended and not exists (select 1 from windlass.jobs as j where j.id = windlass.progress.job_id);

-- name: prune_tallies
-- What was seen of breakers long ago, and nobody asked about since.
delete from windlass.tallies where began_at < :lately;

-- name: prune_unread
-- Who tried a job is remembered as long as it may run again.
delete from windlass.unread where not exists (select 1 from windlass.jobs as j where j.seq = windlass.unread.seq);

-- name: prune_workers
-- Rows of workers that are gone, once nothing runs in their name and a person had a day to look. Of a fleet that is
-- restarted again and again the last 500 are kept: every worker and every page of the dashboard reads this table.
delete from windlass.workers
 where state in ('stopped', 'dead')
   and (
       beat_at < :lately
       or beat_at < (
           select beat_at from windlass.workers where state in ('stopped', 'dead') order by beat_at desc limit 1 offset 499
       )
   )
   and not exists (select 1 from windlass.jobs where state = 'processing' and worker = windlass.workers.id);

-- name: sizes
-- How many rows there are, counted up to a bound.
select (select count(*) from (select 1 from windlass.jobs limit :limit) as live) as live,
       (select count(*) from (select 1 from windlass.archive limit :limit) as ended) as archived;
