-- expand
-- What is enqueued by itself, at times of its own. `next_at` is the first fire time that has not been dealt with.
create table windlass.schedules (
    name text collate "C" primary key,
    type text not null,
    payload text not null,
    schema_version integer not null,
    cron text,
    every bigint,
    tz text not null,
    catch_up text not null check (catch_up in ('none', 'last', 'all')),
    overlap text not null check (overlap in ('skip', 'queue')),
    jitter bigint not null,
    priority smallint,
    max_attempts smallint,
    tenant text not null,
    source text not null check (source in ('code', 'operator')),
    -- Of one that code declared: it does so no more.
    withdrawn smallint not null default 0 check (withdrawn in (0, 1)),
    paused smallint not null default 0 check (paused in (0, 1)),
    paused_by text,
    paused_at bigint,
    next_at bigint,
    problem text,
    created_at bigint not null,
    updated_at bigint not null
);

create index schedules_next on windlass.schedules (next_at) where paused = 0 and withdrawn = 0;

-- What became of the last fire times of each schedule; `made_by` names who had it run by hand.
create table windlass.fires (
    id uuid primary key,
    schedule text collate "C" not null,
    fire_at bigint not null,
    outcome text not null check (outcome in ('enqueued', 'found', 'skipped', 'missed')),
    until_at bigint,
    job_id uuid,
    made_by text,
    noted_at bigint not null
);

-- A fire time is dealt with once.
create unique index fires_once on windlass.fires (schedule, fire_at) where made_by is null;
create index fires_schedule on windlass.fires (schedule, fire_at);
