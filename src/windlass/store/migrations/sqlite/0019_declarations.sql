-- expand
-- The schedules that code declares: one row for each definition of a schedule, so that several releases can declare it while
-- a deploy rolls. `seen_at` is when a process that declares it was last seen.
create table windlass.declarations (
    name text not null,
    digest text not null,
    type text not null,
    definition text not null,
    first_at integer not null,
    seen_at integer not null,
    primary key (name, digest)
) strict, without rowid;

-- The digests of what a worker declares, separated by spaces. Null: a worker of a release before 0019.
alter table windlass.workers add column declares text;
