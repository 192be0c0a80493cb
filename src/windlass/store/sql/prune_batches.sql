-- Batches go when their jobs' records have gone.
delete from windlass.batches
 where finished_at < :ended and not exists (select 1 from windlass.jobs as j where j.batch = windlass.batches.id);
