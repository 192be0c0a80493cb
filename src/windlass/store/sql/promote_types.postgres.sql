-- Scheduled jobs of these types whose time has come enter the claim index; those of others are not looked at. No fence:
-- pending jobs have no lease.
update windlass.jobs as j
   set due = 1
  from (select first.spot
          from unnest(cast(:types as text[])) as w (type),
               lateral (select j.ctid as spot
                          from windlass.jobs as j
                         where j.state = 'pending' and j.due < 1 and j.type = w.type and j.run_at <= :now
                         order by j.run_at
                         limit :limit
                           for update skip locked) as first) as come
 where j.ctid = come.spot;
