-- Too many runs failed. One that is open stays as it is; so does one that an operator holds.
insert into windlass.breakers (name, state, changed_at, why, probe_at)
values (:name, 'open', :now, :why, :probe_at)
on conflict (name) do update
   set state = 'open', changed_at = excluded.changed_at, who = '', why = excluded.why, probe_at = excluded.probe_at,
       probe_seq = null, probe_token = null
 where windlass.breakers.state = 'closed' and windlass.breakers.by_hand = 0;
