-- Failures before the window.
delete from windlass.failures where name = :name and failed_at < :before;
