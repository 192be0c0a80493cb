-- expand
-- What happened, by minute, hour, day and ever (at = 0), type and name: counts that only rise, and, of depths, the
-- largest. Every step is written at once, so nothing has to be rolled up, and totals survive what is pruned.
create table windlass.history (
    step text collate "C" not null check (step in ('minute', 'hour', 'day', 'ever')),
    at bigint not null,
    type text collate "C" not null,
    name text collate "C" not null,
    value bigint not null,
    primary key (step, at, type, name)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);

-- How many live jobs stood where at the last sample, and since when the first of them has waited.
create table windlass.samples (
    type text collate "C" not null,
    priority smallint not null,
    view text collate "C" not null,
    count bigint not null,
    since bigint,
    primary key (type, priority, view)
);

-- The last sample, at most one row: when it was taken, and up to which number jobs have been counted as enqueued.
-- Up to settled_seq for good; from there to counted_seq are those of windlass.uncommitted, which are counted again: a
-- transaction with a lower number may commit later.
create table windlass.samplings (
    id smallint primary key check (id = 1),
    sampled_at bigint not null,
    took bigint not null,
    settled_seq bigint not null,
    counted_seq bigint not null,
    -- Transactions from this one on were not under way yet.
    horizon bigint not null
);
create table windlass.uncommitted (
    type text collate "C" primary key,
    count bigint not null
);

-- Alerts whose condition holds, or held when somebody was last told.
create table windlass.alerts (
    name text collate "C" not null,
    labels text collate "C" not null,
    since bigint not null,
    seen_at bigint not null,
    value double precision not null,
    -- 1: somebody has been told that it fires, and must be told when it is over.
    told smallint not null default 0 check (told in (0, 1)),
    primary key (name, labels)
);

-- History begins here: of the jobs of before, those that are still to run are counted, since their ends will be.
insert into windlass.samplings (id, sampled_at, took, settled_seq, counted_seq, horizon)
select 1, 0, 0, seq, seq, 0
  from (select max(seq) as seq
          from (select max(seq) as seq from windlass.jobs union all select max(seq) from windlass.archive) as both_tables
       ) as highest
 where seq is not null;
insert into windlass.history (step, at, type, name, value)
select 'ever', 0, type, 'enqueued', count(*) from windlass.jobs where state <> 'dead' group by type;
