-- expand
-- Actions on many jobs, which go on when their caller, or the process that carries them, is gone. `place` and `last` are numbers
-- of jobs: up to where it has come, and where it ends. `chunk` has the ids of the jobs that it acts on just now. The token is
-- the fence: only the process that has it moves the operation on; when its lease is over, another one takes it.
create table windlass.operations (
    id text collate "C" primary key,
    verb text collate "C" not null,
    filter text not null,
    arguments text not null,
    rate text,
    most bigint,
    expected bigint not null,
    at_least integer not null,
    who text not null,
    why text not null,
    state text collate "C" not null check (state in ('running', 'paused', 'stopped', 'done', 'failed')),
    place bigint not null,
    last bigint not null,
    chunk text not null,
    reached text not null,
    error text not null,
    token text collate "C",
    owner text not null,
    lease_until bigint not null,
    created_at bigint not null,
    updated_at bigint not null,
    ended_at bigint
);
create index operations_running on windlass.operations (lease_until) where state = 'running';
create index operations_created on windlass.operations (created_at, id);
