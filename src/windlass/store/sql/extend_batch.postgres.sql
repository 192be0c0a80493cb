-- Move the end of many leases. The token is the fence: who lost a lease moves nothing. A row that is locked is being
-- settled, or waited for; the next extension comes soon.
with given as materialized (
    select * from unnest(cast(:seqs as bigint[]), cast(:tokens as uuid[])) as g (seq, token)
),
clock as materialized (
    select coalesce(cast(:now as bigint), windlass.now()) + cast(:by as bigint) as until
),
locked as materialized (
    select j.spot, g.token
      from (select seq, token from given order by seq) as g,
           lateral (select j.ctid as spot
                      from windlass.jobs as j
                     where j.seq = g.seq and j.token = g.token
                       for update skip locked) as j
)
update windlass.jobs as j
   set lease_until = clock.until
  from locked, clock
 where j.ctid = locked.spot and j.token = locked.token
returning j.token, j.lease_until;
