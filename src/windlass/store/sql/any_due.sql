-- Would a claim for this type find anything?
select 1 from windlass.jobs where due = 1 and type = :type and schema_version <= :version limit 1;
