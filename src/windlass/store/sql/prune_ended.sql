-- Retention ends for one archived job.
delete from windlass.archive where seq = :seq;
