-- expand
-- Rises with every change of what operators have set, paused or switched, so that workers notice with their next look.
create table windlass.revisions (
    name text primary key,
    value integer not null
) strict, without rowid;

-- Types that nobody claims from until they are resumed.
create table windlass.pauses (
    type text primary key,
    who text not null,
    why text not null,
    paused_at integer not null
) strict, without rowid;

-- One row for each limit, locked while its permits are counted. next_at: when its rate has a token again.
create table windlass.limits (
    name text primary key,
    next_at integer not null default 0
) strict, without rowid;

-- What stands between a type, or what shares a key, and a dependency that is down. One that was never opened has no row.
create table windlass.breakers (
    name text primary key,
    state text not null check (state in ('closed', 'open')),
    -- 1: an operator's word, which outcomes do not change.
    by_hand integer not null default 0 check (by_hand in (0, 1)),
    changed_at integer not null,
    who text not null default '',
    why text not null default '',
    -- When the next probe may start, and the lease of the last one.
    probe_at integer,
    probe_seq integer,
    probe_token text
) strict, without rowid;

-- What was seen of a breaker's jobs lately: runs by worker and stretch of time, and which jobs failed.
create table windlass.tallies (
    name text not null,
    worker text not null,
    -- A number of the worker's own, and when that stretch began.
    stretch integer not null,
    began_at integer not null,
    done integer not null,
    failed integer not null,
    primary key (name, worker, stretch)
) strict, without rowid;
create table windlass.failures (
    name text not null,
    job_id text not null,
    failed_at integer not null,
    primary key (name, job_id)
) strict, without rowid;

-- A job that is unique until it starts holds its name as long as its claims stand where they stood when it took it.
alter table windlass.jobs add column unique_claims integer not null default 0;

-- Only jobs that were claimed under a limit stand in these; the others pay nothing for them.
create index windlass.jobs_limited on windlass.jobs (type, tenant) where state = 'processing' and limit_key is not null;
create index windlass.jobs_limited_by_key on windlass.jobs (limit_key) where state = 'processing' and limit_key is not null;
-- A name is held by the row itself: whatever ends the job, or kills its worker, nothing is left behind.
create unique index windlass.jobs_unique on windlass.jobs (unique_name)
 where unique_name is not null and state in ('pending', 'processing')
   and (unique_until = 'done' or claims = unique_claims);
