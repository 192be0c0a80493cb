-- May a probe start? Nobody else starts one before this transaction ends. No row: somebody asks at this moment.
select b.state, b.by_hand, b.probe_at,
       exists (select 1 from windlass.jobs as j where j.seq = b.probe_seq and j.token = b.probe_token) as probing
  from windlass.breakers as b
 where b.name = :name
   for update of b skip locked;
