-- Whoever ends this job must look for those that wait for it. No fence: nothing else about it changes.
update windlass.jobs set has_dependents = 1 where id = :id and state in ('pending', 'processing', 'dead');
