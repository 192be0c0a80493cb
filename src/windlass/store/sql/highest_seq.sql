-- The highest number that any job has.
select max(seq) as seq
  from (select max(seq) as seq from windlass.jobs union all select max(seq) from windlass.archive) as both_tables;
