-- Since when could this job have run?
select max(run_at, enqueued_at) as since from windlass.jobs where seq = :seq;
