-- expand
-- How far running jobs say that they have come; newest word only.
create table windlass.progress (
    job_id uuid primary key,
    done bigint not null,
    total bigint,
    noted_at bigint not null
);

-- Side effects that a job has begun or done: whoever runs it again is told.
create table windlass.once (
    job_id uuid not null,
    key text collate "C" not null,
    done smallint not null check (done in (0, 1)),
    noted_at bigint not null,
    primary key (job_id, key)
);

-- Jobs that run only after others: one row for each that they still wait for, and when they wanted to run.
create table windlass.dependencies (
    parent_id uuid not null,
    child_id uuid not null,
    policy text not null check (policy in ('wait', 'cancel', 'run')),
    run_at bigint not null,
    primary key (parent_id, child_id)
);

-- Jobs that were enqueued together. then_job, if there is one, is enqueued when all of them have ended.
create table windlass.batches (
    id text collate "C" primary key,
    name text not null,
    total integer not null,
    then_job text,
    then_id uuid,
    created_at bigint not null,
    finished_at bigint
);

create index dependencies_child on windlass.dependencies (child_id);
create index jobs_batch on windlass.jobs (batch, state) where batch is not null;
create index archive_batch on windlass.archive (batch, state) where batch is not null;
