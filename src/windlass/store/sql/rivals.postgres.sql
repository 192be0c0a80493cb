-- Which jobs of these types stand beside one of a given priority: how many have a higher one, counted up to a bound, and
-- which is the first of the same? Only of the newest schema version that is known: it is asked for the order alone.
select cast(sum(ahead.jobs) as bigint) as ahead, min(head.seq) as head
  from json_each_text(cast(:types as json)) as w (type, version)
       cross join lateral (select count(*) as jobs
                             from (select 1
                                     from windlass.jobs as j
                                    where j.due = 1 and j.type = w.type and j.schema_version = cast(w.version as integer)
                                      and j.priority > :priority
                                    limit :limit) as j) as ahead
       left join lateral (select j.seq
                            from windlass.jobs as j
                           where j.due = 1 and j.type = w.type and j.schema_version = cast(w.version as integer)
                             and j.priority = :priority
                           order by j.type, j.schema_version, j.priority desc, j.tenant, j.seq
                           limit 1) as head on true;
