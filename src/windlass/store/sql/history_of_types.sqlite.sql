-- The same of the types that are named (`types` is JSON).
select at, type, name, value
  from windlass.history
 where step = :step and at >= :since and at < :before and type in (select value from json_each(:types))
   and (name not like '%.%' or name like '%.sum')
 order by at, type, name;
