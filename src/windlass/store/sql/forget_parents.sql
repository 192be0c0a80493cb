-- A job waits for nobody any more.
delete from windlass.dependencies where child_id = :id;
