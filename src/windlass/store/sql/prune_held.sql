-- What workers held that are gone.
delete from windlass.held
 where worker not in (select id from windlass.workers where state in ('running', 'draining'));
