-- The jobs of one type that died last, with what they died of. By number, which is the index that knows types.
select id, type, reason, error, finished_at
  from windlass.jobs
 where state = 'dead' and type = :type
 order by seq desc
 limit :limit;
