-- The next tenants in turn who have due jobs of a type and priority, each with the first of them. A loose scan: a look for
-- each tenant, however many jobs it has.
with recursive turn (tenant, number) as (
    select (select j.tenant
              from windlass.jobs as j
             where j.due = 1 and j.type = :type and j.schema_version = :version and j.priority = :priority
               and j.tenant > :after
             order by j.type, j.schema_version, j.priority desc, j.tenant
             limit 1), 1
     union all
    select (select j.tenant
              from windlass.jobs as j
             where j.due = 1 and j.type = :type and j.schema_version = :version and j.priority = :priority
               and j.tenant > turn.tenant
             order by j.type, j.schema_version, j.priority desc, j.tenant
             limit 1), turn.number + 1
      from turn
     where turn.tenant is not null and turn.number < :limit
)
select turn.tenant,
       (select j.seq
          from windlass.jobs as j
         where j.due = 1 and j.type = :type and j.schema_version = :version and j.priority = :priority
           and j.tenant = turn.tenant and j.run_at <= :now
         order by j.type, j.schema_version, j.priority desc, j.tenant, j.seq
         limit 1) as seq
  from turn
 where turn.tenant is not null;
