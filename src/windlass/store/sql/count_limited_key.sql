-- How many jobs run that share a key, counted up to a bound?
select count(*) as count
  from (select 1
          from windlass.jobs
         where state = 'processing' and limit_key is not null and limit_key = :limit_key
         limit :limit) as running;
