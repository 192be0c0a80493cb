-- Whoever was about to tell somebody of an alert has not come back: others may.
delete from windlass.alerts where name = :telling and seen_at < :before;
