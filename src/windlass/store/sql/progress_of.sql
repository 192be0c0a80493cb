-- How far a job said that it had come.
select done, total, noted_at from windlass.progress where job_id = :id;
