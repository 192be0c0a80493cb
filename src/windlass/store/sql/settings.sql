-- What operators have set.
select name, value from windlass.settings order by name;
