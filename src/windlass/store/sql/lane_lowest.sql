-- The lowest priority at which a type has due jobs.
select priority
  from windlass.jobs
 where due = 1 and type = :type and schema_version = :version
 order by type desc, schema_version desc, priority
 limit 1;
