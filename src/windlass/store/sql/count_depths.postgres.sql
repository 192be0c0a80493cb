-- How many jobs of each type wait: counted anew and kept, unless somebody has counted lately. One statement, since every
-- worker asks so every few seconds; who is too late gets what is known. From the indexes alone. A count of the future was made
-- before the clock was set back. Also when nothing waits there must be a row that says when that was seen.
with clock as materialized (
    select coalesce(cast(:now as bigint), windlass.now()) as now
),
stale as materialized (
    select now
      from clock
     where coalesce(abs(now - (select max(counted_at) from windlass.depths)) > cast(:older_than as bigint), true)
),
counted as materialized (
    select type, count(*) as pending from windlass.jobs where due = 1 and exists (select 1 from stale) group by type
     union all
    select type, count(*) from windlass.jobs
     where state = 'pending' and due = 0 and exists (select 1 from stale)
     group by type
     union all
    select type, 0 from windlass.depths
     union all
    select '', 0
),
noted as (
    insert into windlass.depths (type, pending, counted_at)
    select c.type, sum(c.pending), s.now from stale as s, counted as c group by c.type, s.now order by c.type
    on conflict (type) do update set pending = excluded.pending, counted_at = excluded.counted_at
    returning type, pending, counted_at
)
select clock.now, d.type, d.pending, d.counted_at
  from clock,
       (select type, pending, counted_at from noted
         union all
        select type, pending, counted_at from windlass.depths where not exists (select 1 from noted)) as d;
