-- The batch of a job, live or archived.
select batch from windlass.jobs where id = :id
union all
select batch from windlass.archive where id = :id;
