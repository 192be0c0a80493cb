-- Is there a lease of a worker that is not alive?
select 1
  from windlass.jobs
 where state = 'processing'
   and worker not in (select id from windlass.workers where state in ('running', 'draining'))
 limit 1;
