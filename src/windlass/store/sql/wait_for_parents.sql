-- A new job waits: no time of its own comes before its parents have ended. No fence: nobody has seen it yet.
update windlass.jobs set waits_for = :waits_for, due = 0, run_at = :run_at where id = :id and state = 'pending';
