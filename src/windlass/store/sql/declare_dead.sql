-- A worker is dead if its beat still stands where the watcher saw it.
update windlass.workers
   set state = 'dead'
 where id = :id and beat = :beat and state in ('running', 'draining');
