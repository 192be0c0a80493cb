-- How many jobs of these types have a higher priority than a given one, counted up to a bound? Only of the newest schema
-- version that is known: it is asked for the order alone.
select sum((select count(*)
              from (select 1
                      from windlass.jobs as j
                     where j.due = 1 and j.type = w.key and j.schema_version = w.value and j.priority > :priority
                     limit :limit))) as ahead
  from json_each(:types) as w;
