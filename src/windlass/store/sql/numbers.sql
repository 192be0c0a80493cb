-- From which number to which are there jobs, live or ended?
select min(lowest) as lowest, max(highest) as highest
  from (select min(seq) as lowest, max(seq) as highest from windlass.jobs
         union all
        select min(seq) as lowest, max(seq) as highest from windlass.archive) as both_tables;
