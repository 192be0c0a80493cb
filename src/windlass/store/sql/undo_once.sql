-- A side effect surely did not happen: the next attempt begins it anew.
delete from windlass.once
 where job_id = :id and key = :key and done = 0
   and exists (select 1 from windlass.jobs where seq = :seq and token = :token);
