-- Live jobs by id.
select * from windlass.jobs where id = any (cast(:ids as uuid[]));
