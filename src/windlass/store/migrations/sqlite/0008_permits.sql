-- expand
-- Work that goes on although its attempt was settled, such as a thread past its time: it keeps its permits until it ends
-- or its worker is gone.
create table windlass.held (
    token text primary key,
    worker text not null,
    type text not null,
    tenant text not null,
    limit_key text not null
) strict, without rowid;

-- 1: the key of a request that was answered with the job that held its unique name. Such keys go with that job's record,
-- and only they stand in the index.
alter table windlass.keys add column answered integer not null default 0 check (answered in (0, 1));
create index windlass.keys_answered on windlass.keys (job_id) where answered = 1;
