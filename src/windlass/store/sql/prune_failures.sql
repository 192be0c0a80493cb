-- Failures of long ago that nobody asked about since.
delete from windlass.failures where failed_at < :lately;
