-- Jobs that were enqueued together.
insert into windlass.batches (id, name, total, then_job, then_id, created_at)
values (:id, :name, :total, :then_job, :then_id, :now);
