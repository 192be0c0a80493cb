-- Which jobs of a limited type run? A few of them, to be named.
select id
  from windlass.jobs
 where state = 'processing' and limit_key is not null and type = :type
 limit :limit;
