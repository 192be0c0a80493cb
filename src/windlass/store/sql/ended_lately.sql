-- How many jobs of each type ended lately, among the newest: history must not make this slow.
select type, count(*) as count, min(finished_at) as since
  from (select type, finished_at from windlass.archive order by seq desc limit :limit) as newest
 where finished_at > :since
 group by type;
