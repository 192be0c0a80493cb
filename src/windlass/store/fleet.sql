-- name: join
-- A worker process enters its row; one of its name is its own, entered before the answer was lost.
insert into windlass.workers (
    id, state, beat, beat_at, started_at, host, boot, pid_space, pid, pid_started, version, app, types, slots,
    versions, reader, pools, declares
) values (
    :id, 'running', 0, :now, :now, :host, :boot, :pid_space, :pid, :pid_started, :version, :app, :types, :slots,
    :versions, :reader, :pools, :declares
) on conflict (id) do nothing;

-- name: beat
-- A sign of life. One that was declared dead stays dead: it must take a new id.
update windlass.workers
   set beat = beat + 1,
       beat_at = :now,
       state = :state,
       busy = :busy,
       held = :held,
       done = :done,
       failed = :failed,
       late = :late,
       deaf = :deaf,
       resident_bytes = :resident_bytes,
       pools = coalesce(:pools, pools)
 where id = :id and state in ('running', 'draining');

-- name: declare_dead
-- A worker is dead if its beat still stands where the watcher saw it. One that was about to leave is not missed.
update windlass.workers
   set state = 'dead',
       drain = case when state = 'draining' then 1 else drain end
 where id = :id and beat = :beat and state in ('running', 'draining');

-- name: drain
-- Ask a worker to finish and exit. A dead one that was asked to is not missed.
update windlass.workers set drain = 1 where id = :id and state <> 'stopped';

-- name: alive
-- Workers that should be beating.
select * from windlass.workers where state in ('running', 'draining') order by id;

-- name: requests
-- What operators asked of the jobs that a worker runs.
select token, request
  from windlass.jobs
 where state = 'processing' and worker = :worker and request is not null;

-- name: any_expired
-- Has any lease run out?
select 1 from windlass.jobs where state = 'processing' and lease_until < :now limit 1;

-- name: any_orphan
-- Is there a lease of a worker that is not alive?
select 1
  from windlass.jobs
 where state = 'processing'
   and worker not in (select id from windlass.workers where state in ('running', 'draining'))
 limit 1;

-- name: next_due
-- When is the next scheduled job of a type due?
select run_at
  from windlass.jobs
 where state = 'pending' and due = 0 and type = :type
 order by run_at
 limit 1;

-- name: any_due
-- Would a claim for this type find anything?
select 1 from windlass.jobs where due = 1 and type = :type and schema_version <= :version limit 1;

-- name: any_later
-- Has the time of a scheduled job of this type come, though nobody has promoted it yet?
select 1 from windlass.jobs where state = 'pending' and due = 0 and run_at <= :now and type = :type limit 1;
