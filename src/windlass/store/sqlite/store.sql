-- name: take_write_lock [sqlite]
-- Take the write lock in a transaction that may hold none yet; nothing is changed. Whoever reads first and writes then is
-- refused at once while anybody else writes, however long the connection would wait.
update windlass.numbers set value = value where false;

-- name: give_back_page [sqlite]
-- A page that pruning has freed goes back to the file system. One per statement: the pragma frees a page each
-- time it is stepped, and Python before 3.12 steps a statement that returns no columns only once.
pragma incremental_vacuum(1);

-- name: free_pages [sqlite]
-- How many pages of the file hold nothing.
pragma freelist_count;

-- name: restored [sqlite]
-- What a restored backup holds.
select
    (select count(*) from windlass.jobs) as live,
    (select count(*) from windlass.jobs where state = 'processing') as running,
    (select count(*) from windlass.archive) as archived;

-- name: note_highest [sqlite]
-- The highest number given so far, before records that carry it are deleted.
insert into windlass.numbers (name, value)
select 'seq', max(
           coalesce((select max(seq) from windlass.jobs), 0),
           coalesce((select max(seq) from windlass.archive), 0),
           coalesce((select value from windlass.numbers where name = 'seq'), 0)
       )
 where true
on conflict (name) do update set value = excluded.value;

-- name: prune_ended
-- Retention ends for a batch of archived jobs, oldest first.
delete from windlass.archive
 where seq in (select seq from windlass.archive where finished_at < :before order by finished_at limit :limit)
returning id, caller, key;

-- name: is_empty [sqlite]
-- Has nobody made anything in this file yet? Then it is ours to set up.
select not exists (select 1 from sqlite_master) as empty;

-- name: begin_move [sqlite]
-- From now on this store is being moved. There is one row at most.
insert into windlass.moves (id, state, place, began_at) values (:id, :state, :place, :began_at);

-- name: change_move [sqlite]
-- A move goes on to its next state, if nobody else carries it on and nobody took it back.
update windlass.moves set state = :after where id = :id and state = :before;

-- name: take_back_move [sqlite]
-- A move that is not over is taken back.
delete from windlass.moves where id = :id and state in ('closing', 'closed');

-- name: highest_seq [sqlite]
-- The highest number that any job has, or had.
select max(seq) as seq
  from (
    select max(seq) as seq from windlass.jobs
    union all
    select max(seq) from windlass.archive
    union all
    select value from windlass.numbers where name = 'seq'
  );

-- name: beat_waiting [sqlite]
-- A sign of life of workers that wait for jobs. One that was declared dead stays dead.
update windlass.workers
   set beat = beat + 1, beat_at = :now
 where id in (select value from json_each(:ids)) and state in ('running', 'draining')
returning id;
