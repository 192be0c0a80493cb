-- expand
-- Rises with every change of what operators have set, paused or switched, so that workers notice with their next look.
create table windlass.revisions (
    name text collate "C" primary key,
    value bigint not null
);

-- Types that nobody claims from until they are resumed.
create table windlass.pauses (
    type text collate "C" primary key,
    who text not null,
    why text not null,
    paused_at bigint not null
);

-- One row for each limit, locked while its permits are counted. next_at: when its rate has a token again.
create table windlass.limits (
    name text collate "C" primary key,
    next_at bigint not null default 0
);

-- What stands between a type, or what shares a key, and a dependency that is down. One that was never opened has no row.
create table windlass.breakers (
    name text collate "C" primary key,
    state text not null check (state in ('closed', 'open')),
    -- 1: an operator's word, which outcomes do not change.
    by_hand smallint not null default 0 check (by_hand in (0, 1)),
    changed_at bigint not null,
    who text not null default '',
    why text not null default '',
    -- When the next probe may start, and the lease of the last one.
    probe_at bigint,
    probe_seq bigint,
    probe_token uuid
);

-- What was seen of a breaker's jobs lately: runs by worker and stretch of time, and which jobs failed.
create table windlass.tallies (
    name text collate "C" not null,
    worker text collate "C" not null,
    -- A number of the worker's own, and when that stretch began.
    stretch bigint not null,
    began_at bigint not null,
    done bigint not null,
    failed bigint not null,
    primary key (name, worker, stretch)
);
create table windlass.failures (
    name text collate "C" not null,
    job_id uuid not null,
    failed_at bigint not null,
    primary key (name, job_id)
);

-- A job that is unique until it starts holds its name as long as its claims stand where they stood when it took it.
alter table windlass.jobs add column unique_claims integer not null default 0;

-- Only jobs that were claimed under a limit stand in these; the others pay nothing for them.
create index jobs_limited on windlass.jobs (type, tenant) where state = 'processing' and limit_key is not null;
create index jobs_limited_by_key on windlass.jobs (limit_key) where state = 'processing' and limit_key is not null;
-- A name is held by the row itself: whatever ends the job, or kills its worker, nothing is left behind.
create unique index jobs_unique on windlass.jobs (unique_name)
 where unique_name is not null and state in ('pending', 'processing')
   and (unique_until = 'done' or claims = unique_claims);
