-- The next due jobs of a type if all that are due stand in one lane: the first and the last of all tell. No row: there are
-- several lanes, or there is nothing; then no type is looked for, so that nothing is walked through. The lane is not named
-- once more: with nothing left to order by but seq, the planner would go through the jobs of all types.
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
 where due = 1
   and type = (select cast(:type as text)
                 from first join last using (schema_version, priority, tenant)
                where schema_version <= :known)
   and run_at <= :now
 order by type, schema_version, priority desc, tenant, seq
 limit :limit;
