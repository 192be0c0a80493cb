-- A job failed. When it did so first in the window is kept: it tells since when there are failures.
insert into windlass.failures (name, job_id, failed_at)
values (:name, :job_id, :now)
on conflict (name, job_id) do nothing;
