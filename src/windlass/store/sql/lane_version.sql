-- The newest schema version below a given one of which a type has due jobs.
select schema_version
  from windlass.jobs
 where due = 1 and type = :type and schema_version < :below
 order by schema_version desc
 limit 1;
