-- Every breaker that was ever opened, or set by hand.
select name, state, by_hand, changed_at, who, why, probe_at from windlass.breakers order by name;
