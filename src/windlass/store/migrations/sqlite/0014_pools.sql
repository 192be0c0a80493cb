-- expand
-- The pools of a worker, each with its slots and how many of them are busy and held, as of its last beat.
alter table windlass.workers add column pools text not null default '{}';
