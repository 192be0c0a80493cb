-- Which jobs of a limited type run for one tenant?
select id
  from windlass.jobs
 where state = 'processing' and limit_key is not null and type = :type and tenant = :tenant
 limit :limit;
