-- The next tenant in turn who has due jobs of a type and priority.
select tenant
  from windlass.jobs
 where due = 1 and type = :type and schema_version = :version and priority = :priority and tenant > :after
 order by tenant
 limit 1;
