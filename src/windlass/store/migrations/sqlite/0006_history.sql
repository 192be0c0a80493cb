-- expand
-- What happened, by minute, hour, day and ever (at = 0), type and name: counts that only rise, and, of depths, the
-- largest. Every step is written at once, so nothing has to be rolled up, and totals survive what is pruned.
create table windlass.history (
    step text not null check (step in ('minute', 'hour', 'day', 'ever')),
    at integer not null,
    type text not null,
    name text not null,
    value integer not null,
    primary key (step, at, type, name)
) strict, without rowid;

-- How many live jobs stood where at the last sample, and since when the first of them has waited.
create table windlass.samples (
    type text not null,
    priority integer not null,
    view text not null,
    count integer not null,
    since integer,
    primary key (type, priority, view)
) strict, without rowid;

-- The last sample, at most one row: when it was taken, and up to which number jobs have been counted as enqueued.
-- Up to settled_seq for good; from there to counted_seq are those of windlass.uncommitted, which are counted again: a
-- transaction with a lower number may commit later.
create table windlass.samplings (
    id integer primary key check (id = 1),
    sampled_at integer not null,
    took integer not null,
    settled_seq integer not null,
    counted_seq integer not null,
    -- Transactions from this one on were not under way yet.
    horizon integer not null
) strict, without rowid;
create table windlass.uncommitted (
    type text primary key,
    count integer not null
) strict, without rowid;

-- Alerts whose condition holds, or held when somebody was last told.
create table windlass.alerts (
    name text not null,
    labels text not null,
    since integer not null,
    seen_at integer not null,
    value real not null,
    -- 1: somebody has been told that it fires, and must be told when it is over.
    told integer not null default 0 check (told in (0, 1)),
    primary key (name, labels)
) strict, without rowid;

-- History begins here: of the jobs of before, those that are still to run are counted, since their ends will be.
insert into windlass.samplings (id, sampled_at, took, settled_seq, counted_seq, horizon)
select 1, 0, 0, seq, seq, 0
  from (select max(seq) as seq
          from (select max(seq) as seq from windlass.jobs union all select max(seq) from windlass.archive) as both_tables
       ) as highest
 where seq is not null;
insert into windlass.history (step, at, type, name, value)
select 'ever', 0, type, 'enqueued', count(*) from windlass.jobs where state <> 'dead' group by type;
