-- How many jobs of these types have a higher priority than a given one, counted up to a bound? Only of the newest schema
-- version that is known: it is asked for the order alone.
select cast(sum(ahead.jobs) as bigint) as ahead
  from json_each_text(cast(:types as json)) as w (type, version)
       cross join lateral (select count(*) as jobs
                             from (select 1
                                     from windlass.jobs as j
                                    where j.due = 1 and j.type = w.type and j.schema_version = cast(w.version as integer)
                                      and j.priority > :priority
                                    limit :limit) as j) as ahead;
