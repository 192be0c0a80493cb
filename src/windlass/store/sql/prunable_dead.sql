-- Dead letters past their retention, oldest first.
select seq, id, caller, key
  from windlass.jobs
 where state = 'dead' and finished_at < :before
 order by finished_at
 limit :limit;
