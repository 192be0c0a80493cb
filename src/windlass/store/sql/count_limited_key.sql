-- How many jobs run that share a key, counted up to a bound? Work that outlives its attempt counts while its worker is there.
select count(*) as count
  from (select 1
          from windlass.jobs
         where state = 'processing' and limit_key is not null and limit_key = :limit_key
         union all
        select 1
          from windlass.held as h join windlass.workers as w on w.id = h.worker
         where h.limit_key = :limit_key and w.state in ('running', 'draining')
         limit :limit) as running;
