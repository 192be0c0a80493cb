-- Alerts whose condition held when last looked.
select name, labels, since, seen_at, value, told from windlass.alerts where name <> :telling order by name, labels;
