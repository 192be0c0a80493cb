-- The archive's partitions, oldest first: where each begins, how large it is, and whether a detach was left half-way.
-- None while a move is filling them: nothing may go before it was counted.
select c.relname as name,
       (regexp_match(pg_get_expr(c.relpartbound, c.oid), 'FROM \(''?(\d+)''?\)'))[1]::bigint as begins,
       pg_total_relation_size(c.oid) as size,
       i.inhdetachpending as pending
  from pg_inherits as i join pg_class as c on c.oid = i.inhrelid
 where i.inhparent = 'windlass.archive'::regclass
   and not exists (select from windlass.moves where state = 'filling')
 order by begins;
