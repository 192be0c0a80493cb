-- A batch that is not complete yet.
select then_job from windlass.batches where id = :id and finished_at is null;
