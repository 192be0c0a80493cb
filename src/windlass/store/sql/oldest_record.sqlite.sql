-- When the oldest record of the archive ended.
select min(finished_at) as finished_at from windlass.archive;
