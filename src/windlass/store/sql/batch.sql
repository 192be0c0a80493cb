-- A batch by id.
select id, name, total, then_id, created_at, finished_at from windlass.batches where id = :id;
