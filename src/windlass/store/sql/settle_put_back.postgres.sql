-- Running jobs become pending again: a retry, a snooze or a release. The token alone is the fence. A job that somebody
-- asked to stop is not put back: its request is the answer, and the caller carries it out. What was changed by somebody else
-- at this very moment is not answered, and tried again.
with clock as materialized (
    select now, windlass.moment(now) as moment from (select coalesce(cast(:now as bigint), windlass.now()) as now) as c
),
given as materialized (
    select *
      from unnest(cast(:seqs as bigint[]), cast(:tokens as uuid[]), cast(:waits as bigint[]), cast(:given_backs as integer[]),
                  cast(:snoozes as integer[]), cast(:interruptions as integer[]), cast(:losses as integer[]),
                  cast(:last_tokens as uuid[]), cast(:reasons as text[]), cast(:errors as text[]), cast(:histories as text[]))
           as g (seq, token, wait, given_back, snoozed, interrupted, lost, last_token, reason, error, history)
),
locked as materialized (
    select g.*, j.spot, j.request
      from (select * from given order by seq) as g,
           lateral (select j.ctid as spot, j.request
                      from windlass.jobs as j
                     where j.seq = g.seq and j.token = g.token
                       for update skip locked) as j
),
changed as (
    update windlass.jobs as j
       set state = 'pending',
           due = case when g.wait <= 0 then 1 else 0 end,
           run_at = least(clock.now + g.wait, cast(:latest as bigint)),
           attempts = j.attempts - g.given_back,
           snoozes = j.snoozes + g.snoozed,
           interruptions = j.interruptions + g.interrupted,
           losses = j.losses + g.lost,
           worker = null,
           last_token = g.last_token,
           token = null,
           lease_until = null,
           request = null,
           reason = coalesce(g.reason, j.reason),
           error = coalesce(g.error, j.error),
           history = replace(g.history, '_at":"0001-01-01T00:00:00Z"', '_at":"' || clock.moment || '"'),
           updated_at = clock.now
      from locked as g, clock
     where j.ctid = g.spot and j.token = g.token and g.request is null
    returning g.token
)
select token, cast(null as text) as request from changed
union all
select token, request from locked where request is not null;
