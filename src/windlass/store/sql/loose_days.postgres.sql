-- Partitions that were detached and not dropped yet.
select c.relname as name
  from pg_class as c
 where c.relnamespace = 'windlass'::regnamespace and c.relkind = 'r' and not c.relispartition
   and c.relname ~ '^archive_\d{8}$';
