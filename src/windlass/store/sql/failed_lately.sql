-- The live jobs whose last attempt failed, those that changed last first.
select *
  from windlass.jobs
 where reason is not null and updated_at > :since
 order by updated_at desc
 limit :limit;
