-- Retention ends for a batch of archived jobs, oldest first. The batch is chosen once: a subquery the planner may run again.
with old as materialized (
    select tableoid, ctid
      from windlass.archive
     where finished_at >= :since and finished_at < :before
     order by finished_at
     limit :limit
       for update skip locked
)
delete from windlass.archive as a
 using old
 where a.tableoid = old.tableoid and a.ctid = old.ctid and a.finished_at >= :since and a.finished_at < :before
returning a.id, a.caller, a.key;
