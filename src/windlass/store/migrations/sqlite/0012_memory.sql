-- expand
-- The memory that a worker's processes take, as of its last beat; null where it does not tell.
alter table windlass.workers add column resident_bytes integer;
