-- A sign of life. One that was declared dead stays dead: it must take a new id.
update windlass.workers
   set beat = beat + 1,
       beat_at = :now,
       state = :state,
       busy = :busy,
       held = :held,
       done = :done,
       failed = :failed,
       late = :late,
       deaf = :deaf,
       resident_bytes = :resident_bytes,
       pools = coalesce(:pools, pools)
 where id = :id and state in ('running', 'draining');
