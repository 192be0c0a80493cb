-- A new job belongs to a batch. No fence: nobody has seen it yet.
update windlass.jobs set batch = :batch where id = :id and state = 'pending';
