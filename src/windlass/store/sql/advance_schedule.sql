-- Fire times up to `next_at` are dealt with. The old value is the fence: whoever is too late changes nothing.
update windlass.schedules
   set next_at = :next_at, problem = null
 where name = :name and next_at = :expected and paused = 0 and withdrawn = 0;
