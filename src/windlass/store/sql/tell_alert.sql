-- Somebody has been told of an alert.
update windlass.alerts set told = :told where name = :name and labels = :labels;
