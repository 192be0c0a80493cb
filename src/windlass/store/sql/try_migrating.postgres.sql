-- One migrator at a time, for as long as the session lasts. Never waited for within a statement: that would
-- hold a snapshot, for whose end `create index concurrently` of the other one waits.
select pg_try_advisory_lock(hashtextextended('windlass.schema', 0)) as mine;
