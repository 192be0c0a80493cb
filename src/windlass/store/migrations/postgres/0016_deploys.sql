-- expand
-- The catalogue entry of each release of an application: several are live while a deploy rolls. `seen_at` is when a process
-- of that release was last seen; `silent` marks an entry that a process of Windlass before 0016 has written into
-- windlass.types, which never says that it is still there.
create table windlass.schemas (
    name text collate "C" not null,
    digest text collate "C" not null,
    schema_version integer not null,
    schema text not null,
    options text not null,
    app text not null default '',
    first_at bigint not null,
    seen_at bigint not null,
    silent smallint not null default 0,
    primary key (name, digest)
);

-- What this release has written there. If the rest of the row is something else, an older process has written it since.
alter table windlass.types add column digest text not null default '';

-- Jobs that a worker could not read because another release of the application made them. `readers` are the workers' releases
-- that have tried; while `aside` is 1 the job waits for another one.
create table windlass.unread (
    seq bigint primary key,
    type text collate "C" not null,
    aside smallint not null,
    readers text collate "C" not null,
    field text not null,
    problem text not null,
    run_at bigint not null,
    since bigint not null
);
create index unread_aside on windlass.unread (type, readers, field, seq) where aside = 1;

-- Which payloads a worker can read, as one name for all its types.
alter table windlass.workers add column reader text not null default '';
