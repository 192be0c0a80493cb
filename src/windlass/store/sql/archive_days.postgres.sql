-- The archive's partitions, oldest first: where each begins, how large it is, and whether a detach was left half-way.
-- None while a move is filling them, for nothing may go before it was counted; nor any that begins nowhere: somebody
-- else has made it. Before them those that were detached and not dropped yet.
select name, begins, size, pending, loose
  from (
      select c.relname as name,
             (regexp_match(pg_get_expr(c.relpartbound, c.oid), 'FROM \(''?(\d+)''?\)'))[1]::bigint as begins,
             coalesce(pg_total_relation_size(c.oid), 0) as size,
             i.inhdetachpending as pending,
             false as loose
        from pg_inherits as i join pg_class as c on c.oid = i.inhrelid
       where i.inhparent = 'windlass.archive'::regclass
         and not exists (select from windlass.moves where state = 'filling')
      union all
      select c.relname, null, null, false, true
        from pg_class as c
       where c.relnamespace = 'windlass'::regnamespace and c.relkind = 'r' and not c.relispartition
         and c.relname ~ '^archive_\d{8}$'
  ) as days
 where loose or begins is not null
 order by begins nulls first;
