-- Of claims that are one and the same request, one at a time until the commit, whichever server it was sent to.
select pg_advisory_xact_lock(hashtextextended('windlass.request ' || cast(:mark as text), 0));
