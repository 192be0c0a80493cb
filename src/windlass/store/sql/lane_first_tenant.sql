-- The first tenant of all and its first job: where the turn begins again.
select tenant, seq
  from windlass.jobs
 where due = 1 and type = :type and schema_version = :version and priority = :priority and run_at <= :now
 order by type, schema_version, priority desc, tenant, seq
 limit 1;
