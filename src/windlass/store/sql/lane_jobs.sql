-- A lane's next jobs in the order of their arrival. The due flag is a hint; what decides is run_at.
select seq
  from windlass.jobs
 where due = 1 and type = :type and schema_version = :version and priority = :priority and tenant = :tenant and seq > :after
   and run_at <= :now
 order by seq
 limit :limit;
