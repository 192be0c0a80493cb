-- Let the next migrator in.
select pg_advisory_unlock(hashtextextended('windlass.schema', 0));
