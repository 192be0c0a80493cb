-- expand
-- When something that must happen again and again last succeeded anywhere: reap, promote, schedule, prune.
create table windlass.ticks (
    name text collate "C" primary key,
    at bigint not null,
    who text not null
);

-- Completed jobs whose outcome is to be checked, written with the completion. Taking one moves due_at on, so that
-- whoever is killed meanwhile is followed by another; `takes` only rises, and is the fence of a verdict.
create table windlass.checks (
    job_id uuid primary key,
    type text collate "C" not null,
    sampled_at bigint not null,
    first_due_at bigint not null,
    due_at bigint not null,
    takes integer not null default 0
);

create index checks_due on windlass.checks (type, due_at);

-- What came of the checks of a type.
create table windlass.verdicts (
    type text collate "C" primary key,
    matched bigint not null default 0,
    mismatched bigint not null default 0,
    unknown bigint not null default 0,
    mismatch_at bigint,
    mismatch_job uuid
);

-- The release of the application that a worker runs.
alter table windlass.workers add column app text not null default '';
