-- Running jobs go to the dead letters. The token alone is the fence.
-- A job that others wait for, or that is one of a batch, is left for a transaction with what follows from that.
with clock as materialized (
    select now, windlass.moment(now) as moment from (select coalesce(cast(:now as bigint), windlass.now()) as now) as c
),
given as materialized (
    select *
      from unnest(cast(:seqs as bigint[]), cast(:tokens as uuid[]), cast(:losses as integer[]), cast(:last_tokens as uuid[]),
                  cast(:reasons as text[]), cast(:errors as text[]), cast(:histories as text[]))
           as g (seq, token, lost, last_token, reason, error, history)
),
locked as materialized (
    select j.spot, j.batch, j.has_dependents, g.*
      from (select * from given order by seq) as g,
           lateral (select j.ctid as spot, j.batch, j.has_dependents
                      from windlass.jobs as j
                     where j.seq = g.seq and j.token = g.token
                       and (cast(:marked as boolean) or (j.batch is null and j.has_dependents = 0))
                       for update skip locked) as j
),
changed as (
    update windlass.jobs as j
       set state = 'dead',
           losses = j.losses + g.lost,
           last_token = g.last_token,
           token = null,
           lease_until = null,
           request = null,
           reason = g.reason,
           error = g.error,
           history = replace(g.history, '_at":"0001-01-01T00:00:00Z"', '_at":"' || clock.moment || '"'),
           finished_at = clock.now,
           updated_at = clock.now
      from locked as g, clock
     where j.ctid = g.spot and j.token = g.token
    returning g.token, g.batch, g.has_dependents
)
select token, cast(null as text) as request, batch, has_dependents from changed;
