-- Which is the first job of these types that has a given priority? Asked only where it matters. Only of the newest schema
-- version that is known: it is asked for the order alone.
select min((select j.seq
              from windlass.jobs as j
             where j.due = 1 and j.type = w.key and j.schema_version = w.value and j.priority = :priority
             order by j.tenant, j.seq
             limit 1)) as head
  from json_each(:types) as w;
