-- Free a key, but only from the job that is known to have it.
delete from windlass.keys where caller = :caller and key = :key and job_id = :job_id;
