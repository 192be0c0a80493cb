-- expand
-- When something that must happen again and again last succeeded anywhere: reap, promote, schedule, prune.
create table windlass.ticks (
    name text primary key,
    at integer not null,
    who text not null
) strict, without rowid;

-- Completed jobs whose outcome is to be checked, written with the completion. Taking one moves due_at on, so that
-- whoever is killed meanwhile is followed by another; `takes` only rises, and is the fence of a verdict.
create table windlass.checks (
    job_id text primary key,
    type text not null,
    sampled_at integer not null,
    first_due_at integer not null,
    due_at integer not null,
    takes integer not null default 0
) strict, without rowid;

create index windlass.checks_due on windlass.checks (type, due_at);

-- What came of the checks of a type.
create table windlass.verdicts (
    type text primary key,
    matched integer not null default 0,
    mismatched integer not null default 0,
    unknown integer not null default 0,
    mismatch_at integer,
    mismatch_job text
) strict, without rowid;

-- The release of the application that a worker runs.
alter table windlass.workers add column app text not null default '';
