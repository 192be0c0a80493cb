-- A schedule by name.
select * from windlass.schedules where name = :name;
