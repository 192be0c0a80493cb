-- Leases of workers that are not alive: declared dead, stopped, or without a row.
select *
  from windlass.jobs
 where state = 'processing'
   and worker not in (select id from windlass.workers where state in ('running', 'draining'))
 order by seq
 limit :limit;
