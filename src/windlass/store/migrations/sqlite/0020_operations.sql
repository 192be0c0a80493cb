-- expand
-- Actions on many jobs, which go on when their caller, or the process that carries them, is gone. `place` and `last` are numbers
-- of jobs: up to where it has come, and where it ends. `chunk` has the ids of the jobs that it acts on just now. The token is
-- the fence: only the process that has it moves the operation on; when its lease is over, another one takes it.
create table windlass.operations (
    id text primary key,
    verb text not null,
    filter text not null,
    arguments text not null,
    rate text,
    most integer,
    expected integer not null,
    at_least integer not null,
    who text not null,
    why text not null,
    state text not null check (state in ('running', 'paused', 'stopped', 'done', 'failed')),
    place integer not null,
    last integer not null,
    chunk text not null,
    reached text not null,
    error text not null,
    token text,
    owner text not null,
    lease_until integer not null,
    created_at integer not null,
    updated_at integer not null,
    ended_at integer
) strict, without rowid;
create index windlass.operations_running on windlass.operations (lease_until) where state = 'running';
create index windlass.operations_created on windlass.operations (created_at, id);
