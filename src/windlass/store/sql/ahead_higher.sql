-- How many due jobs of a type have a higher priority, counted up to a bound?
select count(*) as count
  from (select 1
          from windlass.jobs
         where due = 1 and type = :type and schema_version = :version and priority > :priority
         limit :limit) as higher;
