-- An archived job by id; a name that is no id finds none.
select * from windlass.archive where id = windlass.as_id(:id);
