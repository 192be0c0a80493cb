-- Which restricted types have due jobs, and how do their limits stand? One look that locks nothing. Of a type: whether
-- anything is due, and when the next scheduled job is. Of a limit: how many run, counted up to a bound, and when its rate has
-- a token.
with clock as materialized (
    select coalesce(cast(:now as bigint), windlass.now()) as now
)
select clock.now as clock, w.type as name, cast(null as bigint) as running,
       exists (select 1 from windlass.jobs as j where j.due = 1 and j.type = w.type and j.schema_version <= w.known) as due,
       (select j.run_at
          from windlass.jobs as j
         where j.state = 'pending' and j.due < 1 and j.type = w.type
         order by j.run_at
         limit 1) as at
  from clock, unnest(cast(:types as text[]), cast(:versions as integer[])) as w (type, known)
 union all
select clock.now, l.name,
       case l.kind
           when '' then (select count(*)
                           from (select 1
                                   from windlass.jobs as j
                                  where j.state = 'processing' and j.limit_key is not null and j.type = l.owner
                                  limit l.most) as j)
           when 'key:' then (select count(*)
                               from (select 1
                                       from windlass.jobs as j
                                      where j.state = 'processing' and j.limit_key is not null and j.limit_key = l.owner
                                      limit l.most) as j)
           else (select count(*)
                   from (select 1
                           from windlass.jobs as j
                          where j.state = 'processing' and j.limit_key is not null
                          limit l.most) as j)
       end + (select count(*)
                from windlass.held as h join windlass.workers as w on w.id = h.worker
               where w.state in ('running', 'draining')
                 and (l.kind = '*' or (l.kind = '' and h.type = l.owner) or (l.kind = 'key:' and h.limit_key = l.owner))),
       null, (select s.next_at from windlass.limits as s where s.name = l.name)
  from clock,
       unnest(cast(:names as text[]), cast(:kinds as text[]), cast(:owners as text[]), cast(:mosts as bigint[]))
       as l (name, kind, owner, most);
