-- An archived job by id.
select * from windlass.archive where id = :id;
