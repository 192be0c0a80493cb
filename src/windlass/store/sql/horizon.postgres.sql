-- The oldest transaction that is still under way, and the one that will be the next to begin: when the oldest is past
-- what was the next then, nobody can commit anything any more that was begun before.
select cast(cast(pg_snapshot_xmin(pg_current_snapshot()) as text) as bigint) as oldest,
       cast(cast(pg_snapshot_xmax(pg_current_snapshot()) as text) as bigint) as following;
