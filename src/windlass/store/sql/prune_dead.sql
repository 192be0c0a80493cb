-- Retention ends for one dead letter. No fence: it has no lease.
delete from windlass.jobs where seq = :seq and state = 'dead';
