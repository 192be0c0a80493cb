-- A side effect begins, if nobody has begun it before and the lease still holds.
insert into windlass.once (job_id, key, done, noted_at)
select id, cast(:key as text), 0, cast(:now as bigint) from windlass.jobs where seq = :seq and token = :token
on conflict (job_id, key) do nothing
returning done;
