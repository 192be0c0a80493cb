-- New work for a job that waits: it keeps its id and its history, and its attempts begin anew. One that waits for others goes
-- on waiting for them. No fence: it has no lease.
update windlass.jobs
   set payload = :payload,
       schema_version = :schema_version,
       priority = :priority,
       tenant = :tenant,
       max_attempts = :max_attempts,
       attempts = 0,
       run_at = case when waits_for > 0 then run_at else :run_at end,
       due = case when waits_for > 0 then 0 else :due end,
       updated_at = :now
 where seq = :seq and unique_name = :name and state = 'pending' and (unique_until = 'done' or claims = unique_claims);
