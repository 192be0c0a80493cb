-- The jobs that died last, with what they died of.
select id, type, reason, error, finished_at
  from windlass.jobs
 where state = 'dead'
 order by finished_at desc
 limit :limit;
