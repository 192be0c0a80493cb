-- Free the keys of requests that were answered with jobs whose records are gone.
delete from windlass.keys
 where answered = 1 and job_id in (select value from json_each(:ids));
