-- name: revise
-- Something was set, paused or switched: workers see it with their next look.
insert into windlass.revisions (name, value)
values ('flow', 1)
on conflict (name) do update set value = excluded.value + windlass.revisions.value;

-- name: forget_failures
-- Failures before the window.
delete from windlass.failures where name = :name and failed_at < :before;

-- name: note_failure
-- A job failed. When it did so first in the window is kept: it tells since when there are failures.
insert into windlass.failures (name, job_id, failed_at)
values (:name, :job_id, :now)
on conflict (name, job_id) do nothing;

-- name: set_breaker
-- An operator opens or closes a breaker, or lets outcomes decide again.
insert into windlass.breakers (name, state, by_hand, changed_at, who, why)
values (:name, :state, :by_hand, :now, :who, :why)
on conflict (name) do update
   set state = excluded.state, by_hand = excluded.by_hand, changed_at = excluded.changed_at, who = excluded.who,
       why = excluded.why, probe_at = null, probe_seq = null, probe_token = null;

-- name: forget_tallies
-- What was seen before the window.
delete from windlass.tallies where name = :name and began_at < :before;

-- name: failures
-- Of how many different jobs were failures noted under a name, and since when?
select count(*) as jobs, min(failed_at) as first from windlass.failures where name = :name;

-- name: note_tally
-- What one worker saw of a name in one stretch of time, newest word.
insert into windlass.tallies (name, worker, stretch, began_at, done, failed)
values (:name, :worker, :stretch, :began_at, :done, :failed)
on conflict (name, worker, stretch) do update set done = excluded.done, failed = excluded.failed;

-- name: tally
-- How many runs were seen under a name?
select cast(sum(done) as bigint) as done, cast(sum(failed) as bigint) as failed from windlass.tallies where name = :name;

-- name: open_breaker
-- Too many runs failed. One that is open stays as it is; so does one that an operator holds.
insert into windlass.breakers (name, state, changed_at, why, probe_at)
values (:name, 'open', :now, :why, :probe_at)
on conflict (name) do update
   set state = 'open', changed_at = excluded.changed_at, who = '', why = excluded.why, probe_at = excluded.probe_at,
       probe_seq = null, probe_token = null
 where windlass.breakers.state = 'closed' and windlass.breakers.by_hand = 0;

-- name: close_breaker
-- A probe succeeded: all is well again. Its token says that it is the probe, and the last one.
update windlass.breakers
   set state = 'closed', changed_at = :now, who = '', why = 'a probe succeeded', probe_at = null, probe_seq = null,
       probe_token = null
 where name = :name and state = 'open' and by_hand = 0 and probe_token = :token;

-- name: breakers
-- Every breaker that was ever opened, or set by hand.
select name, state, by_hand, changed_at, who, why, probe_at from windlass.breakers order by name;

-- name: switches
-- What holds jobs back: every breaker that was ever opened, or set by hand; types that nobody claims from; and of what
-- were failures noted lately? As one, since each worker asks now and then.
select 'breaker' as what, name, state, by_hand, changed_at, who, why, probe_at from windlass.breakers
union all
select 'pause', type, null, null, paused_at, who, why, null from windlass.pauses
union all
select 'failing', name, null, null, failed_at, null, null, null
  from (select name, max(failed_at) as failed_at from windlass.failures group by name) as f
 order by name;

-- name: pause
-- Claim no jobs of a type. Who paused it first stays known.
insert into windlass.pauses (type, who, why, paused_at)
values (:type, :who, :why, :now)
on conflict (type) do nothing;

-- name: resume
-- Claim jobs of a type again.
delete from windlass.pauses where type = :type;

-- name: revision
-- How often has anything been set, paused or switched?
select value from windlass.revisions where name = 'flow';
