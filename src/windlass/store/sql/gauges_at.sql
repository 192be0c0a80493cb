-- How much waited in each minute of a short stretch of time.
select at, type, name, value
  from windlass.history
 where step = 'minute' and at >= :since and at < :before and name = :name
 order by at;
