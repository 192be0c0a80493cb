-- expand
-- The schema versions that a worker's code knows, by type: why a payload of a newer one is left alone.
alter table windlass.workers add column versions text not null default '{}';
