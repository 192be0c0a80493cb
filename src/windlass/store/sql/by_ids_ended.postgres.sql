-- Archived jobs by id.
select * from windlass.archive where id = any (cast(:ids as uuid[]));
