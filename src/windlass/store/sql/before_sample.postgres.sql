-- The last sample, the highest number that any job has, the oldest transaction that is still under way, and the one that
-- will be the next to begin: when the oldest is past what was the next then, nobody can commit anything any more that was
-- begun before.
select coalesce(cast(:now as bigint), windlass.now()) as now,
       coalesce(last.sampled_at, 0) as sampled_at,
       coalesce(last.took, 0) as took,
       coalesce(last.settled_seq, 0) as settled_seq,
       coalesce(last.counted_seq, 0) as counted_seq,
       coalesce(last.horizon, 0) as horizon,
       exists (select 1 from windlass.samples) as held,
       (select value from windlass.settings where name = 'metrics.tenants') as tenants,
       live.highest is not null as live,
       greatest(live.highest, (select max(seq) from windlass.archive), 0) as highest,
       cast(cast(pg_snapshot_xmin(pg_current_snapshot()) as text) as bigint) as oldest,
       cast(cast(pg_snapshot_xmax(pg_current_snapshot()) as text) as bigint) as following
  from (select 1 as id) as one left join windlass.samplings as last on last.id = one.id,
       (select max(seq) as highest from windlass.jobs) as live;
