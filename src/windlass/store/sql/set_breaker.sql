-- An operator opens or closes a breaker, or lets outcomes decide again.
insert into windlass.breakers (name, state, by_hand, changed_at, who, why)
values (:name, :state, :by_hand, :now, :who, :why)
on conflict (name) do update
   set state = excluded.state, by_hand = excluded.by_hand, changed_at = excluded.changed_at, who = excluded.who,
       why = excluded.why, probe_at = null, probe_seq = null, probe_token = null;
