-- A live job by id.
select * from windlass.jobs where id = :id;
