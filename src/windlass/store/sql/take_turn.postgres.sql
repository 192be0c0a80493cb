-- Is it our turn to claim many of these types? Answers at once, and holds until it is passed on or the session ends.
select pg_try_advisory_lock(hashtextextended('windlass.claim ' || cast(:types as text), 0)) as ours;
