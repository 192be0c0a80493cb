-- The archive's partitions, oldest first: where each begins, how large it is, and whether a detach was left half-way.
-- None while a move is filling them: nothing may go before it was counted. Behind them those that were detached and not
-- dropped yet: nobody knows where they begin.
select c.relname as name,
       (regexp_match(pg_get_expr(c.relpartbound, c.oid), 'FROM \(''?(\d+)''?\)'))[1]::bigint as begins,
       pg_total_relation_size(c.oid) as size,
       i.inhdetachpending as pending
  from pg_inherits as i join pg_class as c on c.oid = i.inhrelid
 where i.inhparent = 'windlass.archive'::regclass
   and not exists (select from windlass.moves where state = 'filling')
union all
select c.relname, null, null, false
  from pg_class as c
 where c.relnamespace = 'windlass'::regnamespace and c.relkind = 'r' and not c.relispartition
   and c.relname ~ '^archive_\d{8}$'
 order by begins nulls last;
