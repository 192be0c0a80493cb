-- The next due jobs of a type if all that are due stand in one lane: the first and the last of all tell. No row: there are
-- several lanes, or there is nothing.
with first as materialized (
    select schema_version, priority, tenant
      from windlass.jobs
     where due = 1 and type = :type
     order by type, schema_version, priority desc, tenant
     limit 1
),
last as materialized (
    select schema_version, priority, tenant
      from windlass.jobs
     where due = 1 and type = :type
     order by type desc, schema_version desc, priority, tenant desc
     limit 1
)
select seq, priority, tenant
  from windlass.jobs
 where due = 1 and type = :type
   and schema_version = (select schema_version from first)
   and priority = (select priority from first)
   and tenant = (select tenant from first)
   and run_at <= :now
   and exists (select 1 from first join last using (schema_version, priority, tenant) where schema_version <= :known)
 order by type, schema_version, priority desc, tenant, seq
 limit :limit;
