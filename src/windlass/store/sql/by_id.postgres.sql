-- A live job by id; a name that is no id finds none.
select * from windlass.jobs where id = windlass.as_id(:id);
