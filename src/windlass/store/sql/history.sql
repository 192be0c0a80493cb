-- What happened in each step of a stretch of time.
select at, type, name, value
  from windlass.history
 where step = :step and at >= :since and at < :before
 order by at, type, name;
