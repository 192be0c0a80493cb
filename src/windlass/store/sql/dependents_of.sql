-- Who waits for this job?
select child_id, policy, run_at from windlass.dependencies where parent_id = :parent_id order by child_id;
