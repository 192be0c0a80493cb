-- How many jobs run under any limit, counted up to a bound?
select count(*) as count
  from (select 1 from windlass.jobs where state = 'processing' and limit_key is not null limit :limit) as running;
