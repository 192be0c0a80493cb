-- Keep the key of a request that was answered with the job of another one; if somebody has it, it stays theirs.
insert into windlass.keys (caller, key, job_id, digest, answered)
values (:caller, :key, :job_id, :digest, 1)
on conflict (caller, key) do nothing;
