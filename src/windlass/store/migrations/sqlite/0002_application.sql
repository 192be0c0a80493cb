-- expand
-- How far running jobs say that they have come; newest word only.
create table windlass.progress (
    job_id text primary key,
    done integer not null,
    total integer,
    noted_at integer not null
) strict, without rowid;

-- Side effects that a job has begun or done: whoever runs it again is told.
create table windlass.once (
    job_id text not null,
    key text not null,
    done integer not null check (done in (0, 1)),
    noted_at integer not null,
    primary key (job_id, key)
) strict, without rowid;

-- Jobs that run only after others: one row for each that they still wait for, and when they wanted to run.
create table windlass.dependencies (
    parent_id text not null,
    child_id text not null,
    policy text not null check (policy in ('wait', 'cancel', 'run')),
    run_at integer not null,
    primary key (parent_id, child_id)
) strict, without rowid;

-- Jobs that were enqueued together. then_job, if there is one, is enqueued when all of them have ended.
create table windlass.batches (
    id text primary key,
    name text not null,
    total integer not null,
    then_job text,
    then_id text,
    created_at integer not null,
    finished_at integer
) strict, without rowid;

create index windlass.dependencies_child on windlass.dependencies (child_id);
create index windlass.jobs_batch on windlass.jobs (batch, state) where batch is not null;
create index windlass.archive_batch on windlass.archive (batch, state) where batch is not null;
