-- The highest priority below a given one at which a type has due jobs.
select priority
  from windlass.jobs
 where due = 1 and type = :type and schema_version = :version and priority < :below
 order by priority desc
 limit 1;
