-- The condition of an alert holds no more, and whoever was told of it has been told that, too.
delete from windlass.alerts where name = :name and labels = :labels;
