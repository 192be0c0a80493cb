-- Take all due jobs if they are few, as a worker at rest finds them: in which order they start is then the caller's to say.
-- If there are more, or if some whose time has come stand aside yet, nothing is taken, and the caller asks by claim_batch,
-- which takes the server nearly twice as long to begin and to end. Only the order keeps the planner to the claim index. No
-- fence: this is where the token is made.
with clock as materialized (
    select coalesce(cast(:now as bigint), windlass.now()) as now
),
wanted as materialized (
    select * from unnest(cast(:types as text[]), cast(:versions as integer[])) as w (type, known)
),
later as materialized (
    select min(first.run_at) as run_at
      from wanted as w,
           lateral (select j.run_at
                      from windlass.jobs as j
                     where j.state = 'pending' and j.due < 1 and j.type = w.type
                     order by j.run_at limit 1) as first
),
due as materialized (
    select j.spot
      from wanted as w,
           lateral (select j.ctid as spot
                      from windlass.jobs as j
                     where j.due = 1 and j.type = w.type and j.schema_version <= w.known
                       and j.seq >= cast(:floor as bigint) and j.run_at <= (select now from clock)
                     order by j.type, j.schema_version, j.priority desc, j.tenant, j.seq
                     limit cast(:few as integer) + 1
                       for update skip locked) as j
     limit cast(:few as integer) + 1
),
state as materialized (
    select clock.now as clock, later.run_at as later, pg_stat_get_dead_tuples('windlass.jobs'::regclass) as dead,
           (select count(*) from due) > cast(:few as integer) or coalesce(later.run_at <= clock.now, false) as more
      from clock, later
),
taken as (
    update windlass.jobs as j
       set state = 'processing',
           due = 0,
           attempts = j.attempts + 1,
           claims = j.claims + 1,
           worker = :worker,
           token = gen_random_uuid(),
           lease_until = state.clock + cast(:lease as bigint),
           started_at = state.clock,
           updated_at = state.clock
      from due, state
     where j.ctid = due.spot and not state.more
    returning j.seq, j.id, j.type, j.priority, j.payload, j.schema_version, j.key, j.caller, j.tenant,
              j.traceparent, j.max_attempts, j.attempts, j.claims, j.snoozes, j.interruptions, j.losses, j.replay_count,
              j.created_at, j.enqueued_at, j.run_at, j.finished_at, j.request, j.error, j.history, j.changes, j.token
)
-- Side by side, never together: one row says how it stands, the others are the jobs.
select * from state full join taken on false;
