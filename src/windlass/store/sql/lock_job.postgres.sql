-- A live job by id, for a change that depends on its state: nobody else changes it meanwhile.
select * from windlass.jobs where id = windlass.as_id(:id) for update;
