-- name: notify [postgres]
-- Told to whoever listens when this transaction commits.
select pg_notify(:channel, '');

-- name: place [postgres]
-- Which database of which running server is this, and are our tables in it? A copy of a database on another server
-- has the same name and the same tables, but not the same start.
select cast(oid as text) as database,
       cast(extract(epoch from pg_postmaster_start_time()) as text) as since,
       datname as name,
       to_regclass('windlass.jobs') is not null as ours
  from pg_catalog.pg_database
 where datname = current_database();

-- name: server [postgres]
-- What a person should know about the server; above all who keeps dead rows from being cleaned up: whoever has been in a
-- transaction for longest, with a snapshot or with something written.
with holder as materialized (
    select a.*, extract(epoch from clock_timestamp() - a.xact_start) as seconds
      from pg_stat_activity as a
     where (a.backend_xmin is not null or a.backend_xid is not null) and a.pid <> pg_backend_pid()
       and a.datname = current_database()
     order by a.xact_start
     limit 1
)
select current_setting('server_version') as version,
       (select coalesce(sum(pg_total_relation_size(c.oid)), 0)
          from pg_class as c where c.relnamespace = 'windlass'::regnamespace and c.relkind in ('r', 'm')) as size,
       coalesce((select seconds from holder), 0) as oldest,
       (select format('process %s (%s, user %s, %s, last statement begun %s)', pid, coalesce(nullif(application_name, ''), 'unnamed'),
                      usename, state, to_char(query_start at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'))
          from holder) as holder,
       -- A user who may not see states (pg_monitor may) is not warned.
       (select count(*) filter (where sync_state = 'async') > 0 and count(*) filter (where sync_state <> 'async') = 0
          from pg_stat_replication where state = 'streaming') as may_lose;

-- name: sessions [postgres]
-- How many sessions there are of how many, who listens, and which settings hold that are not ours to choose.
select (select count(*) from pg_stat_activity where backend_type = 'client backend') as sessions,
       (select count(*)
          from pg_stat_activity
         where datname = current_database() and application_name = 'windlass' and query ilike 'listen %') as listeners,
       cast(current_setting('max_connections') as integer) as most_sessions,
       current_setting('fsync') as fsync,
       current_setting('full_page_writes') as full_page_writes,
       current_setting('autovacuum') as autovacuum,
       current_setting('track_counts') as track_counts;

-- name: oldest_transaction [postgres]
-- Who has been in a transaction for longest, with a snapshot or with something written.
select pid,
       format('process %s (%s, user %s, %s)', pid, coalesce(nullif(application_name, ''), 'unnamed'), usename, state) as holder,
       cast(extract(epoch from clock_timestamp() - xact_start) as double precision) as seconds
  from pg_stat_activity
 where (backend_xmin is not null or backend_xid is not null) and pid <> pg_backend_pid()
   and datname = current_database()
 order by xact_start
 limit 1;

-- name: tables [postgres]
-- How our tables are, as the server's own statistics tell; the days of the archive together.
select case when c.relispartition then 'archive' else s.relname end as name,
       cast(sum(s.n_live_tup) as bigint) as rows,
       cast(sum(s.n_dead_tup) as bigint) as dead_rows,
       cast(sum(pg_total_relation_size(s.relid)) as bigint) as size_bytes,
       cast(extract(epoch from max(greatest(s.last_vacuum, s.last_autovacuum))) * 1000000 as bigint) as vacuumed_at,
       cast(extract(epoch from max(greatest(s.last_analyze, s.last_autoanalyze))) * 1000000 as bigint) as analyzed_at
  from pg_stat_all_tables as s
       join pg_class as c on c.oid = s.relid
 where s.schemaname = 'windlass'
 group by 1
 order by size_bytes desc, name;

-- name: archive_days [postgres]
-- The archive's partitions, oldest first: where each begins, how large it is, and whether a detach was left half-way.
-- None while a move is filling them, for nothing may go before it was counted; nor any that begins nowhere: somebody
-- else has made it, or drops it at this moment. Before them those that were detached and not dropped yet.
-- Materialized: pg_get_expr looks at the catalogue of its own moment, and must not be asked a second time.
with days as materialized (
    select c.relname as name,
           (regexp_match(pg_get_expr(c.relpartbound, c.oid), 'FROM \(''?(\d+)''?\)'))[1]::bigint as begins,
           coalesce(pg_total_relation_size(c.oid), 0) as size,
           i.inhdetachpending as pending,
           false as loose
      from pg_inherits as i join pg_class as c on c.oid = i.inhrelid
     where i.inhparent = 'windlass.archive'::regclass
       and not exists (select from windlass.moves where state = 'filling')
    union all
    select c.relname, null, null, false, true
      from pg_class as c
     where c.relnamespace = 'windlass'::regnamespace and c.relkind = 'r' and not c.relispartition
       and c.relname ~ '^archive_\d{8}$'
)
select name, begins, size, pending, loose
  from days
 where loose or begins is not null
 order by begins nulls first;

-- name: make_days [postgres]
-- The archive's partitions from the day of a time on, as far as they are missing; of now, if none is given.
select windlass.make_days(at.now, cast(:days as integer)), at.now
  from (select coalesce(cast(:now as bigint), windlass.now()) as now) as at;

-- name: count_day [postgres]
-- How many records of a day are left, counted up to a bound.
select count(*) as count
  from (select 1 from windlass.archive where finished_at >= :since and finished_at < :before limit :limit) as left_over;

-- name: prune_day [postgres]
-- Retention ends for a batch of archived jobs, oldest first. The batch is chosen once: a subquery the planner may run again.
with old as materialized (
    select tableoid, ctid
      from windlass.archive
     where finished_at >= :since and finished_at < :before
     order by finished_at
     limit :limit
       for update skip locked
)
delete from windlass.archive as a
 using old
 where a.tableoid = old.tableoid and a.ctid = old.ctid and a.finished_at >= :since and a.finished_at < :before
returning a.id, a.caller, a.key;

-- name: any_dead [postgres]
-- Is there a dead letter past its retention? By the oldest, so that the plan for any value finds it in the index, too.
select coalesce(min(finished_at) < :before, false) as found from windlass.jobs where state = 'dead';

-- name: invalid_indexes [postgres]
-- Indexes that nobody can use and nobody is building: their build was cut off.
select c.relname as name
  from pg_index as i join pg_class as c on c.oid = i.indexrelid
 where c.relnamespace = 'windlass'::regnamespace
   and c.relkind = 'i'
   and not i.indisvalid
   -- What another user builds is not shown to us.
   and not exists (
       select from pg_stat_progress_create_index as p where p.index_relid = i.indexrelid or p.relid is null
   )
 order by c.relname;

-- name: lock_schema [postgres]
-- One migrator at a time; the lock goes with the transaction.
select pg_advisory_xact_lock(hashtextextended('windlass.schema', 0));

-- name: make_schema [postgres]
-- A schema of our own; one that a careful administrator has made for us will do.
create schema if not exists windlass;

-- name: try_migrating [postgres]
-- One migrator at a time, for as long as the session lasts. Never waited for within a statement: that would
-- hold a snapshot, for whose end `create index concurrently` of the other one waits.
select pg_try_advisory_lock(hashtextextended('windlass.schema', 0)) as mine;

-- name: end_migrating [postgres]
-- Let the next migrator in.
select pg_advisory_unlock(hashtextextended('windlass.schema', 0));

-- name: time [postgres]
-- What time is it here?
select windlass.now() as now;

-- name: move_begins [postgres]
-- A move begins to fill this store.
insert into windlass.moves (id, state, place, began_at) values (:id, 'filling', :place, :began_at);

-- name: holds_anything [postgres]
-- Is anything in this store that a move would mix with its own?
select exists (select from windlass.jobs) or exists (select from windlass.archive)
    or exists (select from windlass.keys) or exists (select from windlass.settings)
    or exists (select from windlass.pauses) or exists (select from windlass.breakers)
    or exists (select from windlass.limits)
    or exists (select from windlass.batches) or exists (select from windlass.dependencies)
    or exists (select from windlass.once) or exists (select from windlass.progress)
    or exists (select from windlass.schedules) or exists (select from windlass.fires) as anything;

-- name: move_passes [postgres]
-- The move's own transaction passes its seal.
select set_config('windlass.move', :id, true);

-- name: move_forgets_types [postgres]
-- Empty the catalogue of a store that a move begins to fill: the source's types take its place.
delete from windlass.types;

-- name: move_forgets_schemas [postgres]
-- The same for what each release says of them.
delete from windlass.schemas;

-- name: move_forgets_history [postgres]
-- Workers that were started here before have looked around already; the source's history takes the place of theirs.
with history as (delete from windlass.history), uncommitted as (delete from windlass.uncommitted),
     releases as (delete from windlass.releases)
delete from windlass.samplings;

-- name: move_forgets_audit [postgres]
-- Empty the audit log of a store that a move begins to fill: it is about a store that held nothing, and its numbers are
-- those of the source's entries, which take their place.
delete from windlass.audit;

-- name: number_after [postgres]
-- New jobs get numbers above every one that was ever given.
select setval('windlass.jobs_seq_seq', greatest(:highest, (select last_value from windlass.jobs_seq_seq)));

-- name: audit_number_after [postgres]
-- New lines of the audit log get numbers above those that were copied.
select setval(pg_get_serial_sequence('windlass.audit', 'seq'), greatest(1, (select max(seq) from windlass.audit)));

-- name: move_filled [postgres]
-- The jobs are here.
update windlass.moves set state = 'filled' where id = :id and state = 'filling';

-- name: move_cleared [postgres]
-- A move that was taken back leaves nothing behind.
delete from windlass.moves where id = :id and state = 'filling';

-- name: move_cleared_unbegun [postgres]
-- The same for a move that had copied nothing when it was seen: only if it still has not. It may have begun in its source since.
delete from windlass.moves where id = :id and state = 'filling' and copied = '{}';

-- name: move_copied [postgres]
-- So far rows have been copied. Only from where this process believes to be: two must not copy the same rows.
update windlass.moves set copied = :copied where id = :id and state = 'filling' and copied = :before;

-- name: answered_of_day [postgres]
-- The same for one day whose records are about to go.
delete from windlass.keys as k
 using (select k.caller, k.key
          from windlass.keys as k join windlass.archive as a on a.id = k.job_id
         where k.answered = 1 and a.finished_at >= :since and a.finished_at < :before
         limit :limit) as old
 where k.caller = old.caller and k.key = old.key;

-- name: keys_of_day [postgres]
-- Some keys of the records of one day, which are about to go.
delete from windlass.keys as k
 using (select a.caller, a.key, a.id
          from windlass.archive as a join windlass.keys as k on k.caller = a.caller and k.key = a.key and k.job_id = a.id
         where a.finished_at >= :since and a.finished_at < :before
         limit :limit) as old
 where k.caller = old.caller and k.key = old.key and k.job_id = old.id;
