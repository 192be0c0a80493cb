-- A check that could not be made is made again; the fence is how often it was taken.
update windlass.checks set due_at = :again where job_id = :job_id and takes = :takes;
