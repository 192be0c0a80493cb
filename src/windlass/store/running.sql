-- name: note_progress
-- How far a running job has come. Whoever has lost the lease says nothing any more.
insert into windlass.progress (job_id, done, total, message, noted_at)
select id, cast(:done as bigint), cast(:total as bigint), cast(:message as text), cast(:now as bigint)
  from windlass.jobs where seq = :seq and token = :token
on conflict (job_id) do update
set done = excluded.done, total = excluded.total, message = excluded.message, noted_at = excluded.noted_at;

-- name: progress_of
-- How far a job said that it had come.
select done, total, message, noted_at from windlass.progress where job_id = :id;

-- name: begin_once
-- A side effect begins, if nobody has begun it before and the lease still holds.
insert into windlass.once (job_id, key, done, noted_at)
select id, cast(:key as text), 0, cast(:now as bigint) from windlass.jobs where seq = :seq and token = :token
on conflict (job_id, key) do nothing
returning done;

-- name: once_of
-- Was this side effect done, or only begun? And does the lease still hold?
select o.done
  from windlass.jobs as j left join windlass.once as o on o.job_id = j.id and o.key = :key
 where j.seq = :seq and j.token = :token;

-- name: end_once
-- A side effect is done. No fence: it happened, whoever holds the job by now.
update windlass.once set done = 1, noted_at = :now where job_id = :id and key = :key;

-- name: undo_once
-- A side effect surely did not happen: the next attempt begins it anew.
delete from windlass.once
 where job_id = :id and key = :key and done = 0
   and exists (select 1 from windlass.jobs where seq = :seq and token = :token);

-- name: finish
-- A job ends: its record moves to the archive. The token is the fence; a settle keeps it as the last
-- token, so that a repeat after a lost answer finds itself done. A job that others wait for, or that is one of a
-- batch, is left for who sees to those as well.
insert into windlass.archive (
    {kept}, state, updated_at, finished_at, last_token, reason, error, result, history, changes
)
select {kept}, :state, :now, :now, :last_token, :reason, :error, :result, :history, changes
  from windlass.jobs
 where seq = :seq and token = :token and (:marked or (batch is null and has_dependents = 0));

-- part: claim_set [sqlite]
-- What a claim writes into a job's row. This is where the token is made, with the mark of a request at its end if one is given.
state = 'processing',
       due = 0,
       attempts = attempts + 1,
       claims = claims + 1,
       worker = :worker,
       token = coalesce(lower(hex(randomblob(8))) || :mark, lower(hex(randomblob(16)))),
       lease_until = :now + :lease,
       started_at = :now,
       updated_at = :now;

-- part: claim_set [postgres]
-- The same; the claim's time is in `clock`.
state = 'processing',
           due = 0,
           attempts = j.attempts + 1,
           claims = j.claims + 1,
           worker = :worker,
           token = case when cast(:mark as text) is null then gen_random_uuid()
                        else cast(left(replace(cast(gen_random_uuid() as text), '-', ''), 16) || :mark as uuid) end,
           lease_until = clock.now + cast(:lease as bigint),
           started_at = clock.now,
           updated_at = clock.now;

-- name: put_back
-- A running job becomes pending again: a retry, a snooze or a release. The token is the fence.
update windlass.jobs
   set state = 'pending',
       due = :due,
       run_at = :run_at,
       attempts = attempts - :given_back,
       snoozes = snoozes + :snoozed,
       interruptions = interruptions + :interrupted,
       losses = losses + :lost,
       worker = null,
       last_token = :last_token,
       token = null,
       lease_until = null,
       request = null,
       reason = coalesce(:reason, reason),
       error = coalesce(:error, error),
       history = :history,
       updated_at = :now
 where seq = :seq and token = :token;

-- name: leave
-- A worker has stopped in good order.
update windlass.workers set state = 'stopped', beat_at = :now, busy = 0, held = 0 where id = :id and state <> 'dead';

-- name: bury
-- A pending job goes to the dead letters by hand. No fence: it has no lease.
update windlass.jobs
   set state = 'dead', due = 0, reason = :reason, error = :error, changes = :changes,
       finished_at = :now, updated_at = :now
 where seq = :seq and state = 'pending';

-- name: running_job
-- A job that runs under this lease.
select * from windlass.jobs where seq = :seq and token = :token;

-- name: note_hang
-- What keeps the worker of a running job from answering. The token is the fence.
update windlass.jobs set error = cast(:error as text) where seq = :seq and token = :token;

-- name: extend
-- Move a lease's end. The token is the fence: a worker that lost its lease moves nothing.
update windlass.jobs set lease_until = :until where seq = :seq and token = :token;

-- name: held_by
-- Every lease in a worker's name.
select * from windlass.jobs where state = 'processing' and worker = :worker order by seq;

-- name: orphans
-- Leases of workers that are not alive: declared dead, stopped, or without a row. In no order, so that
-- only the index of running jobs is read.
select *
  from windlass.jobs
 where state = 'processing'
   and worker not in (select id from windlass.workers where state in ('running', 'draining'))
 limit :limit;

-- name: expired
-- Leases past their end; the reaper decides what becomes of them.
select * from windlass.jobs where state = 'processing' and lease_until < :now order by lease_until, seq limit :limit;

-- name: unread_sets
-- Which releases have tried the jobs that are aside, by type and field: one row however many jobs there are. A walk along
-- the index from one set to the next.
with recursive kinds (type, readers, field) as (
    select * from (select u.type, u.readers, u.field from windlass.unread as u
                    where u.aside = 1 order by u.type, u.readers, u.field limit 1) as first
     union all
    select next.type, next.readers, next.field
      from kinds as k
      join windlass.unread as next
        on next.seq = (select u.seq from windlass.unread as u
                        where u.aside = 1 and (u.type, u.readers, u.field) > (k.type, k.readers, k.field)
                        order by u.type, u.readers, u.field, u.seq limit 1)
)
select type, readers, field from kinds limit 1000;

-- name: count_unread
-- The jobs that are aside of one type, tried by the same releases and refused for the same field, counted up to a limit.
select count(*) as count, min(since) as since, min(problem) as problem
  from (select u.since, u.problem
          from windlass.unread as u
          join windlass.jobs as j on j.seq = u.seq and j.state = 'pending' and j.due = 0 and j.run_at = u.run_at
         where u.aside = 1 and u.type = :type and u.readers = :readers and u.field = :field
         limit :limit) as found;

-- name: unread_job
-- What is known of a job that is aside; nothing if it is not.
select u.readers, u.field, u.problem, u.since
  from windlass.unread as u
  join windlass.jobs as j on j.seq = u.seq and j.state = 'pending' and j.due = 0 and j.run_at = u.run_at
 where u.seq = :seq and u.aside = 1;
