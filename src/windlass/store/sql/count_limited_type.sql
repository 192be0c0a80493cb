-- How many jobs of a limited type run, counted up to a bound?
select count(*) as count
  from (select 1
          from windlass.jobs
         where state = 'processing' and limit_key is not null and type = :type
         limit :limit) as running;
