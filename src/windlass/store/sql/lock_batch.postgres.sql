-- A batch that is not complete yet; whoever ends another of its jobs at this moment waits here.
select then_job from windlass.batches where id = :id and finished_at is null for update;
