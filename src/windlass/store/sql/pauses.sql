-- Types that nobody claims from.
select type, who, why, paused_at from windlass.pauses order by type;
