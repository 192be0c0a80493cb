-- expand
-- The jobs that failed last, whatever else waits. Only rows with an error stand in it: a success pays nothing.
create index windlass.jobs_failed on windlass.jobs (updated_at) where reason is not null;
