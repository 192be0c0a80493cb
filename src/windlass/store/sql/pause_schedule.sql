-- Hold a schedule, or let it go on from its next fire time.
update windlass.schedules
   set paused = :paused, paused_by = :paused_by, paused_at = :paused_at, next_at = :next_at, updated_at = :now
 where name = :name;
