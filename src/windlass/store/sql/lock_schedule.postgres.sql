-- A schedule by name, for a change that depends on what it is: nobody else changes or fires it meanwhile.
select * from windlass.schedules where name = :name for update;
