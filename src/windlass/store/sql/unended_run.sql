-- A run of a schedule that has not ended.
select f.job_id
  from windlass.fires as f
  join windlass.jobs as j on j.id = f.job_id
 where f.schedule = :schedule and j.state in ('pending', 'processing')
 limit 1;
