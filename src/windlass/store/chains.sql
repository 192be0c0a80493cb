-- name: add_dependency
-- A job waits for another.
insert into windlass.dependencies (parent_id, child_id, policy, run_at)
values (:parent_id, :child_id, :policy, :run_at)
on conflict (parent_id, child_id) do nothing;

-- name: mark_parent
-- Whoever ends this job must look for those that wait for it. No fence: nothing else about it changes.
update windlass.jobs set has_dependents = 1 where id = :id and state in ('pending', 'processing', 'dead');

-- name: wait_for_parents
-- A new job waits: no time of its own comes before its parents have ended. No fence: nobody has seen it yet.
update windlass.jobs set waits_for = :waits_for, due = 0, run_at = :run_at where id = :id and state = 'pending';

-- name: join_batch
-- A new job belongs to a batch. No fence: nobody has seen it yet.
update windlass.jobs set batch = :batch where id = :id and state = 'pending';

-- name: extend_total
-- More jobs belong to a batch that has not ended.
update windlass.batches set total = total + :count where id = :id;

-- name: open_batch
-- Jobs that were enqueued together.
insert into windlass.batches (id, name, total, then_job, then_id, created_at)
values (:id, :name, :total, :then_job, :then_id, :now);

-- name: lock_batch
-- A batch that is not complete yet.
select then_job from windlass.batches where id = :id and finished_at is null;

-- name: lock_batch [postgres]
-- A batch that is not complete yet; whoever ends another of its jobs at this moment waits here.
select then_job from windlass.batches where id = :id and finished_at is null for update;

-- name: dependents_of
-- Who waits for this job?
select child_id, policy, run_at from windlass.dependencies where parent_id = :parent_id order by child_id;

-- name: remove_dependency
-- A job need not wait for this one any more.
delete from windlass.dependencies where parent_id = :parent_id and child_id = :child_id;

-- name: release_dependent
-- One parent less; without any the job runs at its own time. No fence: a job that waits has no lease.
update windlass.jobs
   set waits_for = waits_for - 1,
       due = case when waits_for = 1 and state = 'pending' then :due else due end,
       run_at = case when waits_for = 1 then :run_at else run_at end
 where id = :id and waits_for > 0 and state in ('pending', 'dead');

-- name: batch_goes_on
-- Is any job of the batch still to run, or running?
select 1 from windlass.jobs where batch = :id and state in ('pending', 'processing') limit 1;

-- name: close_batch
-- All jobs of a batch have ended.
update windlass.batches set finished_at = :now where id = :id and finished_at is null;

-- name: stale_parents
-- Jobs that have ended, or are gone, while others still wait for them.
select distinct d.parent_id
  from windlass.dependencies as d
  left join windlass.jobs as j on j.id = d.parent_id
 where j.id is null or (j.state = 'dead' and d.policy <> 'wait')
 limit :limit;

-- name: stale_batches
-- Batches that nobody has closed although all their jobs have ended.
select id
  from windlass.batches as b
 where finished_at is null
   and not exists (select 1 from windlass.jobs as j where j.batch = b.id and j.state in ('pending', 'processing'))
 limit :limit;

-- name: count_batch
-- How many jobs of a batch stand where?
select state, count(*) as count
  from (select state from windlass.jobs where batch = :id
        union all
        select state from windlass.archive where batch = :id) as members
 group by state;

-- name: batch_of
-- The batch of a job, live or archived.
select batch from windlass.jobs where id = :id
union all
select batch from windlass.archive where id = :id;

-- name: parents_of
-- For whom does this job wait?
select parent_id from windlass.dependencies where child_id = :child_id order by parent_id;

-- name: lock_unique
-- Nobody else takes this name meanwhile: there is one writer at a time.
select :name as name;

-- name: lock_unique [postgres]
-- Nobody else takes this name before this transaction ends. Who starts or ends jobs need not ask: they only free it.
select pg_advisory_xact_lock(hashtextextended('windlass.unique:' || cast(:name as text), 0));

-- name: hold_unique
-- A job that was stored in this transaction takes a name. No fence: it has no lease.
update windlass.jobs
   set unique_name = :name, unique_until = :until, unique_claims = claims
 where id = :id and state = 'pending';

-- name: replace_unique [postgres]
-- New work for a job that waits: it keeps its id and its history, and its attempts begin anew. One that waits for others goes
-- on waiting for them. No fence: it has no lease.
update windlass.jobs
   set payload = cast(:payload as json),
       schema_version = :schema_version,
       priority = :priority,
       max_attempts = :max_attempts,
       attempts = 0,
       run_at = case when waits_for > 0 then run_at else :run_at end,
       due = case when waits_for > 0 then 0 else :due end,
       updated_at = :now
 where seq = :seq and unique_name = :name and state = 'pending' and (unique_until = 'done' or claims = unique_claims);

-- name: replace_unique [sqlite]
-- New work for a job that waits: it keeps its id and its history, and its attempts begin anew. One that waits for others goes
-- on waiting for them. No fence: it has no lease.
update windlass.jobs
   set payload = :payload,
       schema_version = :schema_version,
       priority = :priority,
       max_attempts = :max_attempts,
       attempts = 0,
       run_at = case when waits_for > 0 then run_at else :run_at end,
       due = case when waits_for > 0 then 0 else :due end,
       updated_at = :now
 where seq = :seq and unique_name = :name and state = 'pending' and (unique_until = 'done' or claims = unique_claims);
