-- Which jobs run that share a key? A few of them, to be named.
select id
  from windlass.jobs
 where state = 'processing' and limit_key is not null and limit_key = :limit_key
 limit :limit;
