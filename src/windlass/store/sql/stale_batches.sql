-- Batches that nobody has closed although all their jobs have ended.
select id
  from windlass.batches as b
 where finished_at is null
   and not exists (select 1 from windlass.jobs as j where j.batch = b.id and j.state in ('pending', 'processing'))
 limit :limit;
