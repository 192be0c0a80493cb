-- What happened in each step of a stretch of time; of what was measured the sums, without the buckets, which are most rows.
select at, type, name, value
  from windlass.history
 where step = :step and at >= :since and at < :before and (name not like '%.%' or name like '%.sum')
 order by at, type, name;
