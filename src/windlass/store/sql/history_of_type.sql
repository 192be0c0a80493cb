-- The same of one type.
select at, type, name, value
  from windlass.history
 where step = :step and at >= :since and at < :before and type = :type
 order by at, name;
