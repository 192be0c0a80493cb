-- How many due jobs of other types come before one of this priority and age: of a higher priority, and older ones of the
-- same? Each counted, and looked for, up to a bound.
select coalesce(sum((select count(*)
                       from (select 1
                               from windlass.jobs as j
                              where j.due = 1 and j.type = w.key and j.schema_version = w.value
                                and j.priority > :priority
                              limit :limit))), 0) as higher,
       coalesce(sum((select count(*)
                       from (select j.seq
                               from windlass.jobs as j
                              where j.due = 1 and j.type = w.key and j.schema_version = w.value
                                and j.priority = :priority
                              order by j.tenant, j.seq
                              limit :limit) as lane
                      where lane.seq < :seq)), 0) as older
  from json_each(:types) as w;
