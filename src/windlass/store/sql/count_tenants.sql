-- How many jobs of a limited type run for each tenant?
select tenant, count(*) as count
  from windlass.jobs
 where state = 'processing' and limit_key is not null and type = :type
 group by tenant;
