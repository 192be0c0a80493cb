-- Keep that a sample was taken, unless somebody else has taken one since we looked.
insert into windlass.samplings as held (id, sampled_at, took, settled_seq, counted_seq, horizon)
values (1, :now, :took, :settled, :counted, :horizon)
on conflict (id) do update
   set sampled_at = excluded.sampled_at,
       took = excluded.took,
       settled_seq = excluded.settled_seq,
       counted_seq = excluded.counted_seq,
       horizon = excluded.horizon
 where held.sampled_at = :seen;
