-- A schedule goes.
delete from windlass.schedules where name = :name;
