-- What holds jobs back: every breaker that was ever opened, or set by hand; types that nobody claims from; and of what
-- were failures noted lately? As one, since each worker asks now and then.
select 'breaker' as what, name, state, by_hand, changed_at, who, why, probe_at from windlass.breakers
union all
select 'pause', type, null, null, paused_at, who, why, null from windlass.pauses
union all
select 'failing', name, null, null, null, null, null, null from (select distinct name from windlass.failures) as f
 order by name;
