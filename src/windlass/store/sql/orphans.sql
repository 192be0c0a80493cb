-- Leases of workers that are not alive: declared dead, stopped, or without a row. In no order, so that
-- only the index of running jobs is read.
select *
  from windlass.jobs
 where state = 'processing'
   and worker not in (select id from windlass.workers where state in ('running', 'draining'))
 limit :limit;
