-- A live job by id, for a change that depends on its state.
select * from windlass.jobs where id = :id;
