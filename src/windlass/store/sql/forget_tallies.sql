-- What was seen before the window.
delete from windlass.tallies where name = :name and began_at < :before;
