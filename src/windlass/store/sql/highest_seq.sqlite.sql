-- The highest number that any job has, or had.
select max(seq) as seq
  from (
    select max(seq) as seq from windlass.jobs
    union all
    select max(seq) from windlass.archive
    union all
    select value from windlass.numbers where name = 'seq'
  );
