-- A schedule by name, for a change that depends on what it is.
select * from windlass.schedules where name = :name;
