-- Retention ends for a batch of dead letters, oldest first. No fence: they have no lease. The batch is chosen once.
with old as materialized (
    select seq
      from windlass.jobs
     where state = 'dead' and finished_at < :before
     order by finished_at
     limit :limit
       for update skip locked
)
delete from windlass.jobs
 where seq in (select seq from old)
returning id, caller, key;
