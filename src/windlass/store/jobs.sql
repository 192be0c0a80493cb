-- name: by_id
-- A live job by id, and whether it is aside because no worker could read it.
select j.*, exists (select 1 from windlass.unread as u
                     where u.seq = j.seq and u.aside = 1 and u.run_at = j.run_at and j.state = 'pending' and j.due = 0) as unread
  from windlass.jobs as j where j.id = :id;

-- name: by_id [postgres]
-- A live job by id, and whether it is aside because no worker could read it; a name that is no id finds none.
select j.*, exists (select 1 from windlass.unread as u
                     where u.seq = j.seq and u.aside = 1 and u.run_at = j.run_at and j.state = 'pending' and j.due = 0) as unread
  from windlass.jobs as j where j.id = windlass.as_id(:id);

-- name: by_id_ended
-- An archived job by id.
select * from windlass.archive where id = :id;

-- name: by_id_ended [postgres]
-- An archived job by id; a name that is no id finds none.
select * from windlass.archive where id = windlass.as_id(:id);

-- name: key_matches_anywhere
-- The jobs of all callers that have a key. A caller is this machine, or the service that an API key names.
select k.job_id
  from (select '' as caller union select name from windlass.api_keys) as c
  join windlass.keys as k on k.caller = c.caller and k.key = :key
 union
select job_id from windlass.keys where answered = 1 and key = :key
 limit :limit;

-- name: key_matches
-- The jobs of one caller that have a key: the one that every release finds, and those of the tenants.
select job_id from windlass.keys where caller = :caller and key = :key
 union
select job_id from windlass.keys where answered = 1 and key = :key and caller >= :first and caller < :beyond
 limit :limit;

-- name: key_holder
-- Which job has a key within a scope?
select job_id, digest from windlass.keys where caller = :scope and key = :key;

-- name: take_key
-- Take a key within a scope for a job. No row: another job has it.
insert into windlass.keys (caller, key, job_id, digest, answered)
values (:scope, :key, :job_id, :digest, :answered)
on conflict (caller, key) do nothing
returning job_id;

-- name: free_key
-- Free a key within a scope, but only from the job that is known to have it.
delete from windlass.keys where caller = :scope and key = :key and job_id = :job_id;

-- name: hand_key
-- Give a key to another job, but only from the job that is known to have it.
update windlass.keys
   set job_id = :job_id, digest = :digest, answered = :answered
 where caller = :scope and key = :key and job_id = :holder;

-- name: replay
-- A dead job runs again: same row, history kept, attempts anew. No fence: it has no lease.
update windlass.jobs
   set state = 'pending',
       due = :due,
       run_at = :run_at,
       priority = coalesce(:priority, priority),
       payload = coalesce(:payload, payload),
       schema_version = coalesce(:schema_version, schema_version),
       attempts = 0,
       snoozes = 0,
       interruptions = 0,
       losses = 0,
       replay_count = replay_count + 1,
       changes = :changes,
       enqueued_at = :now,
       updated_at = :now,
       finished_at = null
 where seq = :seq and state = 'dead';

-- name: forget_unread
-- A job was given another payload: workers that could not read the one before may try this one.
delete from windlass.unread where seq = :seq;

-- name: retake_unique
-- A dead job takes its name again, just before it is sent back. No fence: it has no lease.
update windlass.jobs set unique_claims = claims where seq = :seq and state = 'dead';

-- name: confirm [postgres]
-- Lets the commit wait for its synchronous replica, if there is one, although nothing was changed (see flush). A job that is found
-- may have been committed without: by a server that was killed, or in a wait that was cut short. To answer with it would promise
-- what a failover can lose.
select number from windlass.schema where number = 1 and current_setting('synchronous_standby_names') <> '' for key share;

-- name: acknowledge
-- A job's effect was acknowledged, if nobody has said so before. Forgotten with what its handler has done once.
insert into windlass.once (job_id, key, done, noted_at)
values (:id, :key, 1, :now)
on conflict (job_id, key) do nothing;

-- name: edit
-- Change a pending job. No fence: it has no lease.
update windlass.jobs
   set priority = coalesce(:priority, priority),
       run_at = coalesce(:run_at, run_at),
       due = coalesce(:due, due),
       payload = coalesce(:payload, payload),
       schema_version = coalesce(:schema_version, schema_version),
       changes = :changes,
       updated_at = :now
 where seq = :seq and state = 'pending';

-- name: count_due
-- Due jobs by type, schema version and priority, and since when the first of them has waited.
select type, schema_version, priority, count(*) as count, min(run_at) as since
  from windlass.jobs
 where due = 1
 group by type, schema_version, priority;

-- name: count_overdue
-- The same of jobs whose time has come and that no worker has let into the claim index yet.
select type, schema_version, priority, count(*) as count, min(run_at) as since
  from windlass.jobs
 where state = 'pending' and due = 0 and run_at <= :now
 group by type, schema_version, priority;

-- name: count_later
-- Pending jobs whose time has not come, by type and view. Those that are aside are counted from their own table and
-- taken out of the others: to look each scheduled job up there would cost too much.
with aside as (
    select j.type, j.attempts, j.run_at
      from windlass.unread as u
      join windlass.jobs as j on j.seq = u.seq and j.state = 'pending' and j.due = 0 and j.run_at = u.run_at
     where u.aside = 1 and j.run_at > :now
)
select type, view, cast(sum(count) as bigint) as count
  from (select type,
               case when run_at >= :never then 'waiting' when attempts > 0 then 'retrying' else 'scheduled' end as view,
               count(*) as count
          from windlass.jobs where state = 'pending' and due = 0 and run_at > :now group by 1, 2
        union all
        select type, 'unreadable', count(*) from aside group by 1
        union all
        select type,
               case when run_at >= :never then 'waiting' when attempts > 0 then 'retrying' else 'scheduled' end,
               -count(*)
          from aside group by 1, 2) as later
 group by 1, 2
having sum(count) > 0;

-- name: count_running
-- Running jobs by type and whether their lease has run out.
select type, lease_until < :now as stuck, count(*) as count
  from windlass.jobs
 where state = 'processing'
 group by 1, 2;

-- name: count_dead
-- Dead letters by type.
select type, count(*) as count from windlass.jobs where state = 'dead' group by type;

-- name: count_ended
-- Ended jobs by type and state: the newest only, since history must not make this slow.
select type, state, count(*) as count
  from (select type, state from windlass.archive order by seq desc limit :limit) as newest
 group by type, state;

-- name: ended_ever
-- How many jobs of each type have ever ended, by how: counters that outlive the records.
select type, name, value
  from windlass.history
 where step = 'ever' and at = 0 and type <> '' and name in ('completed', 'cancelled', 'discarded');

-- name: lock_job
-- A live job by id, for a change that depends on its state.
select * from windlass.jobs where id = :id;

-- name: lock_job [postgres]
-- A live job by id, for a change that depends on its state: nobody else changes it meanwhile.
select * from windlass.jobs where id = windlass.as_id(:id) for update;

-- name: end_idle
-- A job that nobody runs ends: cancelled while pending, or discarded while dead. No fence: it has no lease.
insert into windlass.archive (
    {kept}, state, updated_at, finished_at, last_token, reason, error, history, changes
)
select {kept}, :state, :now, :now, last_token, reason, error, history, :changes
  from windlass.jobs
 where seq = :seq and state = :expected;

-- name: remove_idle
-- The live row of a job that has just ended without running.
delete from windlass.jobs where seq = :seq and state = :expected;

-- name: request
-- Ask the worker of a running job to stop it. Changes no state: the holder of the lease settles.
update windlass.jobs
   set request = :request, changes = :changes, updated_at = :now
 where seq = :seq and state = 'processing';

-- name: forget_parents
-- A job waits for nobody any more.
delete from windlass.dependencies where child_id = :id;

-- name: wait_no_more
-- A person sent the job on its way before its parents had ended. No fence: it has no lease.
update windlass.jobs set waits_for = 0 where id = :id and waits_for > 0 and state in ('pending', 'dead');

-- name: numbers
-- From which number to which are there jobs, live or ended?
select min(lowest) as lowest, max(highest) as highest
  from (select min(seq) as lowest, max(seq) as highest from windlass.jobs
         union all
        select min(seq) as lowest, max(seq) as highest from windlass.archive) as both_tables;

-- name: find_live
-- Live jobs, to be ordered and limited alone or together with the others, and whether each is aside because no worker could
-- read it. The filter's clauses stand where the mark is.
select {kept}, state, updated_at, finished_at, reason, error, history, changes,
       lease_until, request, null as result, unread_seq is not null as unread
  from windlass.jobs
       left join (select u.seq as unread_seq, u.run_at as unread_at from windlass.unread as u where u.aside = 1) as aside
              on unread_seq = seq and unread_at = run_at and state = 'pending' and due = 0
 where seq < :before /*where*/

-- name: find_ended
-- Archived jobs, to be ordered and limited alone or together with the others.
-- The filter's clauses stand where the mark is.
select {kept}, state, updated_at, finished_at, reason, error, history, changes,
       null as lease_until, null as request, result, 1 = 0 as unread
  from windlass.archive
 where seq < :before /*where*/

-- name: batch
-- A batch by id.
select id, name, total, then_id, created_at, finished_at from windlass.batches where id = :id;

-- name: remove_new
-- Undo an insert of this same transaction. No fence: nobody else has seen the row.
delete from windlass.jobs where id = :id and claims = 0;
