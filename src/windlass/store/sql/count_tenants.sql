-- How many jobs of a limited type run for each tenant? Work that outlives its attempt counts while its worker is there.
select tenant, count(*) as count
  from (select tenant
          from windlass.jobs
         where state = 'processing' and limit_key is not null and type = :type
         union all
        select h.tenant
          from windlass.held as h join windlass.workers as w on w.id = h.worker
         where h.type = :type and w.state in ('running', 'draining')) as running
 group by tenant;
