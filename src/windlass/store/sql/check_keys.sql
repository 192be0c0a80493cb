-- A key without a record would refuse work for nothing.
select key, job_id
  from windlass.keys
 where job_id not in (select id from windlass.jobs)
   and job_id not in (select id from windlass.archive);
