-- When the oldest record of the archive ended, to the day: the first partition that is not empty. Asked of one after the
-- other, by a subquery with a limit: an `exists` would be planned as a join, which reads them all.
select days.begins as finished_at
  from (select (regexp_match(pg_get_expr(c.relpartbound, c.oid), 'FROM \(''?(\d+)''?\)'))[1]::bigint as begins
          from pg_inherits as i join pg_class as c on c.oid = i.inhrelid
         where i.inhparent = 'windlass.archive'::regclass) as days
 where (select 1 from windlass.archive as a
         where a.finished_at >= days.begins and a.finished_at < days.begins + 86400000000 limit 1) is not null
 order by days.begins
 limit 1;
