-- The work of an attempt goes on after it is settled: it keeps its permits, if it has any. Written before the settle, and
-- fenced by the token: of a lease that is lost nothing is kept.
insert into windlass.held (token, worker, type, tenant, limit_key)
select token, worker, type, tenant, limit_key
  from windlass.jobs
 where seq = :seq and token = :token and limit_key is not null
on conflict (token) do nothing;
