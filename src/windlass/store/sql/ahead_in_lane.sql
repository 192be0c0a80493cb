-- How many due jobs stand in a lane before a place in it, counted up to a bound?
select count(*) as count
  from (select 1
          from windlass.jobs
         where due = 1 and type = :type and schema_version = :version and priority = :priority and tenant = :tenant
           and seq < :seq
         limit :limit) as earlier;
