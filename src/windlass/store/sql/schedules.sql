-- Every schedule.
select * from windlass.schedules order by name;
