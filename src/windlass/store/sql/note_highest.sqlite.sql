-- The highest number given so far, before records that carry it are deleted.
insert into windlass.numbers (name, value)
select 'seq', max(
           coalesce((select max(seq) from windlass.jobs), 0),
           coalesce((select max(seq) from windlass.archive), 0),
           coalesce((select value from windlass.numbers where name = 'seq'), 0)
       )
 where true
on conflict (name) do update set value = excluded.value;
