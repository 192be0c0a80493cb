-- Schedules whose time has come, the longest waiting first.
select * from windlass.schedules
 where paused = 0 and withdrawn = 0 and next_at <= :now
 order by next_at
 limit :limit;
