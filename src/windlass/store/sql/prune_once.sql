-- Side effects are remembered as long as the job may run again, and a while longer.
delete from windlass.once
 where noted_at < :ended and not exists (select 1 from windlass.jobs as j where j.id = windlass.once.job_id);
