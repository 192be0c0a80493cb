-- One migrator at a time; the lock goes with the transaction.
select pg_advisory_xact_lock(hashtextextended('windlass.schema', 0));
