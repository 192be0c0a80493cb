-- The same of all types but those that are named (`types` is JSON), added up; of ages the largest.
select at, name, cast(case name when 'oldest' then max(value) else sum(value) end as bigint) as value
  from windlass.history
 where step = :step and at >= :since and at < :before and type <> ''
   and type <> all (array(select json_array_elements_text(cast(:types as json))))
   and (name not like '%.%' or name like '%.sum')
 group by at, name
 order by at, name;
