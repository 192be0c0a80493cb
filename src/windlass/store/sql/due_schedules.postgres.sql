-- Schedules whose time has come, the longest waiting first; those that could not be fired before come last, so that they
-- stand in nobody's way. Those that somebody else fires are left to them.
select * from windlass.schedules
 where paused = 0 and withdrawn = 0 and next_at <= :now
 order by problem is not null, next_at
 limit :limit
   for update skip locked;
