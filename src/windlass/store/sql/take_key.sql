-- Take a key for a job. No row: somebody has it.
insert into windlass.keys (caller, key, job_id, digest)
values (:caller, :key, :job_id, :digest)
on conflict (caller, key) do nothing
returning job_id;
