-- Indexes that nobody can use and nobody is building: their build was cut off.
select c.relname as name
  from pg_index as i join pg_class as c on c.oid = i.indexrelid
 where c.relnamespace = 'windlass'::regnamespace
   and c.relkind = 'i'
   and not i.indisvalid
   -- What another user builds is not shown to us.
   and not exists (
       select from pg_stat_progress_create_index as p where p.index_relid = i.indexrelid or p.relid is null
   )
 order by c.relname;
