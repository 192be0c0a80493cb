-- May a probe start? One writer at a time, so nobody else starts one meanwhile.
select b.state, b.by_hand, b.probe_at,
       exists (select 1 from windlass.jobs as j where j.seq = b.probe_seq and j.token = b.probe_token) as probing
  from windlass.breakers as b
 where b.name = :name;
