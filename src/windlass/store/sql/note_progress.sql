-- How far a running job has come. Whoever has lost the lease says nothing any more.
insert into windlass.progress (job_id, done, total, noted_at)
select id, cast(:done as bigint), cast(:total as bigint), cast(:now as bigint) from windlass.jobs where seq = :seq and token = :token
on conflict (job_id) do update set done = excluded.done, total = excluded.total, noted_at = excluded.noted_at;
