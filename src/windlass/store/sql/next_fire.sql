-- When the next schedule fires.
select min(next_at) as next_at from windlass.schedules where paused = 0 and withdrawn = 0;
