-- Which is the first job of these types that has a given priority? Jobs that were claimed lately lie before it in the index,
-- so this is asked only where it matters. Only of the newest schema version that is known: it is asked for the order alone.
select min(head.seq) as head
  from json_each_text(cast(:types as json)) as w (type, version)
       cross join lateral (select j.seq
                             from windlass.jobs as j
                            where j.due = 1 and j.type = w.type and j.schema_version = cast(w.version as integer)
                              and j.priority = :priority
                            order by j.type, j.schema_version, j.priority desc, j.tenant, j.seq
                            limit 1) as head;
