-- A sign of life, at the server's own time. One that was declared dead stays dead: it must take a new id.
update windlass.workers
   set beat = beat + 1,
       beat_at = coalesce(cast(:now as bigint), windlass.now()),
       state = :state,
       busy = :busy,
       held = :held,
       done = :done,
       failed = :failed,
       late = :late,
       deaf = cast(cast(:deaf as boolean) as integer),
       resident_bytes = cast(:resident_bytes as bigint),
       pools = coalesce(cast(:pools as text), pools)
 where id = :id and state in ('running', 'draining');
