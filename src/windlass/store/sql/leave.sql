-- A worker has stopped in good order.
update windlass.workers set state = 'stopped', beat_at = :now, busy = 0, held = 0 where id = :id and state <> 'dead';
