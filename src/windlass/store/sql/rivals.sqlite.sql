-- Which jobs of these types stand beside one of a given priority: how many have a higher one, counted up to a bound, and
-- which is the first of the same? Only of the newest schema version that is known: it is asked for the order alone.
select sum((select count(*)
              from (select 1
                      from windlass.jobs as j
                     where j.due = 1 and j.type = w.key and j.schema_version = w.value and j.priority > :priority
                     limit :limit))) as ahead,
       min((select j.seq
              from windlass.jobs as j
             where j.due = 1 and j.type = w.key and j.schema_version = w.value and j.priority = :priority
             order by j.tenant, j.seq
             limit 1)) as head
  from json_each(:types) as w;
