-- The same of one type.
select at, type, name, value
  from windlass.history
 where step = :step and at >= :since and at < :before and type = :type and (name not like '%.%' or name like '%.sum')
 order by at, name;
