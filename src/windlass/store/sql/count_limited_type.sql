-- How many jobs of a limited type run, counted up to a bound? Work that outlives its attempt counts while its worker is there.
select count(*) as count
  from (select 1
          from windlass.jobs
         where state = 'processing' and limit_key is not null and type = :type
         union all
        select 1
          from windlass.held as h join windlass.workers as w on w.id = h.worker
         where h.type = :type and w.state in ('running', 'draining')
         limit :limit) as running;
