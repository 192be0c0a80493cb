-- When the oldest record of the archive ended, to the day: the first partition that is not empty.
select days.begins as finished_at
  from (select (regexp_match(pg_get_expr(c.relpartbound, c.oid), 'FROM \(''?(\d+)''?\)'))[1]::bigint as begins
          from pg_inherits as i join pg_class as c on c.oid = i.inhrelid
         where i.inhparent = 'windlass.archive'::regclass) as days
 where exists (select from windlass.archive as a
                where a.finished_at >= days.begins and a.finished_at < days.begins + 86400000000)
 order by days.begins
 limit 1;
