-- Archived jobs past their retention, oldest first.
select seq, id, caller, key from windlass.archive where finished_at < :before order by finished_at limit :limit;
