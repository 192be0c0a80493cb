-- What operators asked of the jobs that a worker runs.
select token, request
  from windlass.jobs
 where state = 'processing' and worker = :worker and request is not null;
