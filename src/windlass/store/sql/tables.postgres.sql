-- How our tables are, as the server's own statistics tell; the days of the archive together.
select case when c.relispartition then 'archive' else s.relname end as name,
       cast(sum(s.n_live_tup) as bigint) as rows,
       cast(sum(s.n_dead_tup) as bigint) as dead_rows,
       cast(sum(pg_total_relation_size(s.relid)) as bigint) as size_bytes,
       cast(extract(epoch from max(greatest(s.last_vacuum, s.last_autovacuum))) * 1000000 as bigint) as vacuumed_at,
       cast(extract(epoch from max(greatest(s.last_analyze, s.last_autoanalyze))) * 1000000 as bigint) as analyzed_at
  from pg_stat_all_tables as s
       join pg_class as c on c.oid = s.relid
 where s.schemaname = 'windlass'
 group by 1
 order by size_bytes desc, name;
