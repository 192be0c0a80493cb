-- How many due jobs of other types come before one of this priority and age: of a higher priority, and older ones of the
-- same? Each counted, and looked for, up to a bound.
select cast(coalesce(sum(higher.jobs), 0) as bigint) as higher, cast(coalesce(sum(older.jobs), 0) as bigint) as older
  from json_each_text(cast(:types as json)) as w (type, version)
       cross join lateral (select count(*) as jobs
                             from (select 1
                                     from windlass.jobs as j
                                    where j.due = 1 and j.type = w.type and j.schema_version = cast(w.version as integer)
                                      and j.priority > :priority
                                    limit :limit) as j) as higher
       cross join lateral (select count(*) as jobs
                             from (select j.seq
                                     from windlass.jobs as j
                                    where j.due = 1 and j.type = w.type and j.schema_version = cast(w.version as integer)
                                      and j.priority = :priority
                                    order by j.type, j.schema_version, j.priority desc, j.tenant, j.seq
                                    limit :limit) as lane
                            where lane.seq < :seq) as older;
