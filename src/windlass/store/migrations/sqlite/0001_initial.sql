-- expand
create table windlass.schema (
    number integer primary key,
    name text not null,
    kind text not null check (kind in ('expand', 'contract')),
    applied_at integer not null
) strict;

-- Pending, processing and dead jobs. Finished ones leave for the archive, so that this table stays small.
create table windlass.jobs (
    seq integer primary key,
    id text not null unique,
    type text not null,
    state text not null check (state in ('pending', 'processing', 'dead')),
    priority integer not null check (priority between 0 and 10),
    -- 1 while the job is pending and its time has come: only such jobs stand in the claim index.
    due integer not null check (due in (0, 1)),
    tenant text not null default '',
    payload text not null,
    schema_version integer not null default 1,
    key text,
    caller text not null default '',
    traceparent text,
    -- Carried for limits, uniques, batches and dependencies.
    limit_key text,
    unique_name text,
    unique_until text check (unique_until in ('start', 'done')),
    batch text,
    waits_for integer not null default 0,
    has_dependents integer not null default 0,
    max_attempts integer not null check (max_attempts between 1 and 20),
    attempts integer not null default 0,
    claims integer not null default 0,
    snoozes integer not null default 0,
    interruptions integer not null default 0,
    losses integer not null default 0,
    replay_count integer not null default 0,
    -- All times are microseconds since 1970, UTC.
    created_at integer not null,
    enqueued_at integer not null,
    updated_at integer not null,
    run_at integer not null,
    started_at integer,
    finished_at integer,
    worker text,
    token text,
    last_token text,
    lease_until integer,
    request text check (request in ('cancel', 'bury')),
    reason text,
    error text,
    history text,
    changes text,
    check ((state = 'processing') = (token is not null)),
    check ((state = 'processing') = (lease_until is not null)),
    check (due = 0 or state = 'pending')
) strict;

-- Each index also carries what its own condition asks for: else SQLite reads the rows to count them.
create index windlass.jobs_claim on windlass.jobs (type, schema_version, priority desc, tenant, seq, run_at, due)
 where due = 1;
create index windlass.jobs_later on windlass.jobs (run_at, type, attempts, state, due)
 where state = 'pending' and due = 0;
create index windlass.jobs_later_of_type on windlass.jobs (type, run_at)
 where state = 'pending' and due = 0;
create index windlass.jobs_running on windlass.jobs (worker, lease_until, type, state) where state = 'processing';
create index windlass.jobs_dead on windlass.jobs (seq, type, state) where state = 'dead';
create index windlass.jobs_dead_since on windlass.jobs (finished_at, state) where state = 'dead';

-- Completed, cancelled and discarded jobs, until their retention ends.
create table windlass.archive (
    seq integer primary key,
    id text not null unique,
    type text not null,
    state text not null check (state in ('completed', 'cancelled', 'discarded')),
    priority integer not null,
    tenant text not null,
    payload text not null,
    schema_version integer not null,
    key text,
    caller text not null,
    traceparent text,
    batch text,
    max_attempts integer not null,
    attempts integer not null,
    claims integer not null,
    snoozes integer not null,
    interruptions integer not null,
    losses integer not null,
    replay_count integer not null,
    created_at integer not null,
    enqueued_at integer not null,
    updated_at integer not null,
    run_at integer not null,
    started_at integer,
    finished_at integer not null,
    worker text,
    last_token text,
    reason text,
    error text,
    result text,
    history text,
    changes text
) strict;

create index windlass.archive_finished on windlass.archive (finished_at);

-- The highest number ever given, noted when records go: a number is never given twice.
create table windlass.numbers (
    name text primary key,
    value integer not null
) strict, without rowid;

-- A key belongs to one job as long as the job's record lives.
create table windlass.keys (
    caller text not null,
    key text not null,
    job_id text not null,
    digest text not null,
    primary key (caller, key)
) strict, without rowid;


-- The catalogue of job types, so that producers and operators need not import handlers.
create table windlass.types (
    name text primary key,
    schema_version integer not null,
    schema text not null,
    options text not null,
    created_at integer not null,
    updated_at integer not null
) strict, without rowid;

-- One narrow row per worker process. `beat` only rises; the reaper watches it move.
create table windlass.workers (
    id text primary key,
    state text not null check (state in ('running', 'draining', 'stopped', 'dead')),
    beat integer not null default 0,
    beat_at integer not null,
    started_at integer not null,
    host text not null,
    boot text not null,
    pid_space text not null,
    pid integer not null,
    pid_started integer not null,
    version text not null,
    types text not null,
    slots integer not null,
    busy integer not null default 0,
    held integer not null default 0,
    done integer not null default 0,
    failed integer not null default 0,
    late integer not null default 0,
    deaf integer not null default 0,
    drain integer not null default 0
) strict, without rowid;

-- What operators have set at run time; it stands above code and defaults until it is reset.
create table windlass.settings (
    name text primary key,
    value text not null,
    updated_at integer not null
) strict, without rowid;

-- A move to or from another store, at most one: which it is, how far it has come, and where the other store is.
create table windlass.moves (
    id text primary key,
    state text not null check (state in ('closing', 'closed', 'moved', 'filling', 'filled')),
    place text not null,
    began_at integer not null,
    -- By table, the place in its order up to which rows have been copied here.
    copied text not null default '{}',
    -- 1 within a transaction that ends a running job while the store is closing.
    passing integer not null default 0
) strict, without rowid;
