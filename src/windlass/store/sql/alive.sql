-- Workers that should be beating.
select * from windlass.workers where state in ('running', 'draining') order by id;
