-- What jobs said of themselves goes once they have ended and a while has passed.
delete from windlass.progress
 where noted_at < :ended and not exists (select 1 from windlass.jobs as j where j.id = windlass.progress.job_id);
