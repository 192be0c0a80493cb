-- Free the keys of requests that were answered with jobs whose records are gone.
delete from windlass.keys
 where answered = 1 and job_id = any (cast(:ids as uuid[]));
