-- The outcome of a job that ends now is to be checked later.
insert into windlass.checks (job_id, type, sampled_at, first_due_at, due_at)
values (:job_id, :type, :now, :due_at, :due_at)
on conflict (job_id) do nothing;
