-- The last sample, the highest number that any job has, and who may still be writing what nobody sees yet: here one at a
-- time writes, in the order of the numbers.
select :now as now,
       coalesce(last.sampled_at, 0) as sampled_at,
       coalesce(last.took, 0) as took,
       coalesce(last.settled_seq, 0) as settled_seq,
       coalesce(last.counted_seq, 0) as counted_seq,
       coalesce(last.horizon, 0) as horizon,
       exists (select 1 from windlass.samples) as held,
       (select value from windlass.settings where name = 'metrics.tenants') as tenants,
       live.highest is not null as live,
       max(coalesce(live.highest, 0), coalesce((select max(seq) from windlass.archive), 0)) as highest,
       0 as oldest,
       0 as following
  from (select 1 as id) as one left join windlass.samplings as last on last.id = one.id,
       (select max(seq) as highest from windlass.jobs) as live;
