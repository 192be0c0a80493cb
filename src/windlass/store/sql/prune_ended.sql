-- Retention ends for a batch of archived jobs, oldest first.
delete from windlass.archive
 where seq in (select seq from windlass.archive where finished_at < :before order by finished_at limit :limit)
returning id, caller, key;
