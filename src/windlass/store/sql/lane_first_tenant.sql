-- The first tenant of all: where the turn begins again.
select tenant
  from windlass.jobs
 where due = 1 and type = :type and schema_version = :version and priority = :priority
 order by tenant
 limit 1;
