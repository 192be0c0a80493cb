-- A person sent the job on its way before its parents had ended. No fence: it has no lease.
update windlass.jobs set waits_for = 0 where id = :id and waits_for > 0 and state in ('pending', 'dead');
