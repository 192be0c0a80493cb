-- Ask a worker to finish and exit.
update windlass.workers set drain = 1 where id = :id and state in ('running', 'draining');
