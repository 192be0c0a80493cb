-- Whose key is it?
select job_id, digest from windlass.keys where caller = :caller and key = :key;
