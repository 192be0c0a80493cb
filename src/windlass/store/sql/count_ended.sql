-- Ended jobs by type and state: the newest only, since history must not make this slow.
select type, state, count(*) as count
  from (select type, state from windlass.archive order by seq desc limit :limit) as newest
 group by type, state;
