-- The same of the types that are named (`types` is JSON).
select at, type, name, value
  from windlass.history
 where step = :step and at >= :since and at < :before
   and type = any (array(select json_array_elements_text(cast(:types as json))))
   and (name not like '%.%' or name like '%.sum')
 order by at, type, name;
