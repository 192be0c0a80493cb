-- A dead job takes its name again, just before it is sent back. No fence: it has no lease.
update windlass.jobs set unique_claims = claims where seq = :seq and state = 'dead';
