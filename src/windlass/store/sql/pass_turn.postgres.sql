-- Our claim is committed: whoever comes next sees what we took.
select pg_advisory_unlock(hashtextextended('windlass.claim ' || cast(:types as text), 0));
