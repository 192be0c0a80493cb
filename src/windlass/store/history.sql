-- name: alerts
-- Alerts whose condition held when last looked.
select name, labels, since, seen_at, value, told from windlass.alerts where name <> :telling order by name, labels;

-- name: forget_claims
-- Whoever was about to tell somebody of an alert has not come back: others may.
delete from windlass.alerts where name = :telling and seen_at < :before;

-- name: note_alert
-- The condition of an alert holds; since when is known from before.
insert into windlass.alerts (name, labels, since, seen_at, value)
values (:name, :labels, :now, :now, :value)
on conflict (name, labels) do update set seen_at = excluded.seen_at, value = excluded.value;

-- name: forget_alert
-- The condition of an alert holds no more, and whoever was told of it has been told that, too.
delete from windlass.alerts where name = :name and labels = :labels;

-- name: claim_alert
-- Take it upon oneself to tell somebody of an alert: a row of its own says that one is about to. Who is killed before the
-- word is out leaves it behind, and it is forgotten after a while.
insert into windlass.alerts (name, labels, since, seen_at, value)
select :telling, :of, :now, :now, 0
  from windlass.alerts
 where name = :name and labels = :labels and told <> :told
on conflict (name, labels) do nothing;

-- name: tell_alert
-- Somebody has been told of an alert.
update windlass.alerts set told = :told where name = :name and labels = :labels;

-- name: add_history [postgres]
-- Count what happened, in every step at once. `rows` is JSON: [[type, name, value], ...]. In a fixed order, so that two
-- who count the same never wait for each other.
insert into windlass.history as held (step, at, type, name, value)
select steps.step, steps.at, each ->> 0, each ->> 1, cast(each ->> 2 as bigint)
  from json_array_elements(cast(:rows as json)) as each,
       (values ('minute', cast(:minute as bigint)), ('hour', cast(:hour as bigint)), ('day', cast(:day as bigint)),
               ('ever', 0)) as steps (step, at)
 order by 1, 2, 3, 4
on conflict (step, at, type, name) do update set value = held.value + excluded.value;

-- name: add_history [sqlite]
-- Count what happened, in every step at once. `rows` is JSON: [[type, name, value], ...].
insert into windlass.history as held (step, at, type, name, value)
select steps.column1, steps.column2, json_extract(each.value, '$[0]'), json_extract(each.value, '$[1]'),
       json_extract(each.value, '$[2]')
  from json_each(:rows) as each,
       (values ('minute', :minute), ('hour', :hour), ('day', :day), ('ever', 0)) as steps
 where true
on conflict (step, at, type, name) do update set value = held.value + excluded.value;

-- name: note_flush
-- Somebody tells its counts; changes nothing if it has told this flush before, and its answer was lost.
insert into windlass.flushes as held (teller, number, told_at)
values (:teller, :number, :now)
on conflict (teller) do update
   set number = excluded.number, told_at = excluded.told_at
 where held.number < excluded.number;

-- name: note_release
-- A release of the application is counted apart from now on, unless it is already.
insert into windlass.releases (version, first_at) values (:version, :now) on conflict (version) do nothing;

-- name: note_history [postgres]
-- Keep how much waited: by minute the newest word, by hour and day the largest.
insert into windlass.history as held (step, at, type, name, value)
select steps.step, steps.at, each ->> 0, each ->> 1, cast(each ->> 2 as bigint)
  from json_array_elements(cast(:rows as json)) as each,
       (values ('minute', cast(:minute as bigint)), ('hour', cast(:hour as bigint)),
               ('day', cast(:day as bigint))) as steps (step, at)
 order by 1, 2, 3, 4
on conflict (step, at, type, name) do update
   set value = case held.step when 'minute' then excluded.value else greatest(held.value, excluded.value) end;

-- name: note_history [sqlite]
-- Keep how much waited: by minute the newest word, by hour and day the largest.
insert into windlass.history as held (step, at, type, name, value)
select steps.column1, steps.column2, json_extract(each.value, '$[0]'), json_extract(each.value, '$[1]'),
       json_extract(each.value, '$[2]')
  from json_each(:rows) as each, (values ('minute', :minute), ('hour', :hour), ('day', :day)) as steps
 where true
on conflict (step, at, type, name) do update
   set value = case held.step when 'minute' then excluded.value else max(held.value, excluded.value) end;

-- name: totals
-- Everything that was ever counted.
select type, name, value from windlass.history where step = 'ever' and at = 0;

-- name: history
-- What happened in each step of a stretch of time; of what was measured the sums, without the buckets, which are most rows.
select at, type, name, value
  from windlass.history
 where step = :step and at >= :since and at < :before and (name not like '%.%' or name like '%.sum')
 order by at, type, name;

-- name: history_of_types [postgres]
-- The same of the types that are named (`types` is JSON).
select at, type, name, value
  from windlass.history
 where step = :step and at >= :since and at < :before
   and type = any (array(select json_array_elements_text(cast(:types as json))))
   and (name not like '%.%' or name like '%.sum')
 order by at, type, name;

-- name: history_of_types [sqlite]
-- The same of the types that are named (`types` is JSON).
select at, type, name, value
  from windlass.history
 where step = :step and at >= :since and at < :before and type in (select value from json_each(:types))
   and (name not like '%.%' or name like '%.sum')
 order by at, type, name;

-- name: history_of_others [postgres]
-- The same of all types but those that are named (`types` is JSON), added up; of ages the largest.
select at, name, cast(case name when 'oldest' then max(value) else sum(value) end as bigint) as value
  from windlass.history
 where step = :step and at >= :since and at < :before and type <> ''
   and type <> all (array(select json_array_elements_text(cast(:types as json))))
   and (name not like '%.%' or name like '%.sum')
 group by at, name
 order by at, name;

-- name: history_of_others [sqlite]
-- The same of all types but those that are named (`types` is JSON), added up; of ages the largest.
select at, name, case name when 'oldest' then max(value) else sum(value) end as value
  from windlass.history
 where step = :step and at >= :since and at < :before and type <> ''
   and type not in (select value from json_each(:types)) and (name not like '%.%' or name like '%.sum')
 group by at, name
 order by at, name;

-- name: releases
-- The releases that are counted apart, the newest first.
select version, first_at from windlass.releases order by first_at desc, version desc;

-- name: increase
-- How often anything happened since a minute, by type and name: by the minute up to the next whole hour, from there by the
-- hour, so that six hours cost no more than one.
select type, name, cast(sum(value) as bigint) as value
  from (select type, name, value from windlass.history where step = 'minute' and at >= :since and at < :hour
        union all
        select type, name, value from windlass.history where step = 'hour' and at >= :hour) as lately
 group by type, name;

-- name: gauges_at
-- How much waited in each minute of a short stretch of time.
select at, type, name, value
  from windlass.history
 where step = 'minute' and at >= :since and at < :before and name = :name
 order by at;

-- name: gauges [postgres]
-- How much waited in each of these minutes (`minutes` is JSON), of the types of the catalogue.
select h.at, h.type, h.value
  from json_array_elements_text(cast(:minutes as json)) as m (at) cross join windlass.types as t
       join windlass.history as h
       on h.step = 'minute' and h.at = cast(m.at as bigint) and h.type = t.name and h.name = :name
 order by h.at;

-- name: gauges [sqlite]
-- How much waited in each of these minutes (`minutes` is JSON), of the types of the catalogue. Each value is looked up.
select h.at, h.type, h.value
  from json_each(:minutes) as m cross join windlass.types as t
       cross join windlass.history as h
       on h.step = 'minute' and h.at = m.value and h.type = t.name and h.name = :name
 order by h.at;

-- name: prune_restarts
-- Restarts are counted by worker for as long as there were some lately.
delete from windlass.history
 where step = 'ever' and at = 0 and type = '' and name like 'restarts.%'
   and name not in (select name from windlass.history
                     where step = 'day' and at >= :since and type = '' and name like 'restarts.%');

-- name: forget_counted
-- What was ever counted under a name, of whatever type; what was counted by minute, hour and day goes in its time.
delete from windlass.history where step = 'ever' and at = 0 and name = :name;

-- name: forget_release
-- A release is counted apart no longer.
delete from windlass.releases where version = :version;

-- name: last_runs
-- In which hour each release that is counted apart last ran anything. Only the hours of a day or so are read.
select name, max(at) as at
  from windlass.history
 where step = 'hour' and at >= :since and name like 'release.%.attempts'
 group by name;

-- name: last_sampling
-- The last sample.
select sampled_at, took, settled_seq, counted_seq, horizon from windlass.samplings where id = 1;

-- name: samples
-- How many live jobs stood where at the last sample, by type, and of some tenants.
select type, priority, view, tenant, count, since from windlass.samples order by type, priority, view, tenant;

-- name: depths
-- How many jobs of each type waited when the last sample was taken; also when none did, there is a row that says when.
select at.sampled_at, waiting.type, cast(sum(waiting.count) as bigint) as pending
  from windlass.samplings as at
       left join windlass.samples as waiting on waiting.view in ('due', 'scheduled', 'retrying', 'waiting', 'unreadable')
                                              and waiting.type <> ''
 where at.id = 1 and at.sampled_at > 0
 group by at.sampled_at, waiting.type;

-- name: before_sample [postgres]
-- The last sample, the highest number that any job has, the oldest transaction that is still under way, and the one that
-- will be the next to begin: when the oldest is past what was the next then, nobody can commit anything any more that was
-- begun before.
select coalesce(cast(:now as bigint), windlass.now()) as now,
       coalesce(last.sampled_at, 0) as sampled_at,
       coalesce(last.took, 0) as took,
       coalesce(last.settled_seq, 0) as settled_seq,
       coalesce(last.counted_seq, 0) as counted_seq,
       coalesce(last.horizon, 0) as horizon,
       exists (select 1 from windlass.samples) as held,
       (select value from windlass.settings where name = 'metrics.tenants') as tenants,
       live.highest is not null as live,
       greatest(live.highest, (select max(seq) from windlass.archive), 0) as highest,
       cast(cast(pg_snapshot_xmin(pg_current_snapshot()) as text) as bigint) as oldest,
       cast(cast(pg_snapshot_xmax(pg_current_snapshot()) as text) as bigint) as following
  from (select 1 as id) as one left join windlass.samplings as last on last.id = one.id,
       (select max(seq) as highest from windlass.jobs) as live;

-- name: before_sample [sqlite]
-- The last sample, the highest number that any job has, and who may still be writing what nobody sees yet: here one at a
-- time writes, in the order of the numbers.
select :now as now,
       coalesce(last.sampled_at, 0) as sampled_at,
       coalesce(last.took, 0) as took,
       coalesce(last.settled_seq, 0) as settled_seq,
       coalesce(last.counted_seq, 0) as counted_seq,
       coalesce(last.horizon, 0) as horizon,
       exists (select 1 from windlass.samples) as held,
       (select value from windlass.settings where name = 'metrics.tenants') as tenants,
       live.highest is not null as live,
       max(coalesce(live.highest, 0), coalesce((select max(seq) from windlass.archive), 0)) as highest,
       0 as oldest,
       0 as following
  from (select 1 as id) as one left join windlass.samplings as last on last.id = one.id,
       (select max(seq) as highest from windlass.jobs) as live;

-- name: note_sampling
-- Keep that a sample was taken, unless somebody else has taken one since we looked.
insert into windlass.samplings as held (id, sampled_at, took, settled_seq, counted_seq, horizon)
values (1, :now, :took, :settled_seq, :counted_seq, :horizon)
on conflict (id) do update
   set sampled_at = excluded.sampled_at,
       took = excluded.took,
       settled_seq = excluded.settled_seq,
       counted_seq = excluded.counted_seq,
       horizon = excluded.horizon
 where held.sampled_at = :after;

-- name: forget_samples
-- Make room for a new sample.
delete from windlass.samples;

-- name: note_samples [postgres]
-- Keep a sample. `rows` is JSON: [[type, priority, view, tenant, count, since], ...].
insert into windlass.samples (type, priority, view, tenant, count, since)
select each ->> 0, cast(each ->> 1 as smallint), each ->> 2, each ->> 3, cast(each ->> 4 as bigint), cast(each ->> 5 as bigint)
  from json_array_elements(cast(:rows as json)) as each;

-- name: note_samples [sqlite]
-- Keep a sample. `rows` is JSON: [[type, priority, view, tenant, count, since], ...].
insert into windlass.samples (type, priority, view, tenant, count, since)
select json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'), json_extract(value, '$[3]'),
       json_extract(value, '$[4]'), json_extract(value, '$[5]')
  from json_each(:rows);

-- name: count_poison
-- Dead letters that died again after this number of replays. Only dead letters are read, by their index.
select type, priority, 'poison' as view, '' as tenant, count(*) as count, min(finished_at) as since
  from windlass.jobs where state = 'dead' and replay_count >= :replays group by type, priority;

-- name: sample_standing
-- Where every live job stands, by type and priority, and since when the first of them has; what is due but has not been
-- promoted yet is due all the same. One statement: an idle fleet must not ask much.
-- Jobs that are aside are counted from their own table and taken out of the other views by a negative count.
with aside as (
    select j.type, j.priority, j.attempts, j.run_at, u.since
      from windlass.unread as u
      join windlass.jobs as j on j.seq = u.seq and j.state = 'pending' and j.due = 0 and j.run_at = u.run_at
     where u.aside = 1 and j.run_at > :now
)
select type, priority, 'due' as view, count(*) as count, min(run_at) as since
  from windlass.jobs where due = 1 group by 1, 2
union all
select type, priority, 'unreadable', count(*), min(since)
  from aside group by 1, 2
union all
select type, priority,
       case when run_at >= :never then 'waiting' when attempts > 0 then 'retrying' else 'scheduled' end,
       -count(*), min(run_at)
  from aside group by 1, 2, 3
union all
select type, priority,
       case when run_at >= :never then 'waiting' when run_at <= :now then 'due'
            when attempts > 0 then 'retrying' else 'scheduled' end,
       count(*), min(run_at)
  from windlass.jobs where state = 'pending' and due = 0 group by 1, 2, 3
union all
select type, priority, case when lease_until < :now then 'stuck' else 'processing' end, count(*), min(started_at)
  from windlass.jobs where state = 'processing' group by 1, 2, 3
union all
select type, priority, 'dead', count(*), min(finished_at)
  from windlass.jobs where state = 'dead' group by 1, 2
union all
select type, priority, 'poison', count(*), min(finished_at)
  from windlass.jobs where state = 'dead' and replay_count >= :replays group by 1, 2;

-- name: sample_tenants [postgres]
-- Where the live jobs of the tenants stand that operators name (`tenants` is JSON), those of all others together. Not run
-- unless some are named.
with aside as (
    select j.tenant, j.attempts, j.run_at, u.since
      from windlass.unread as u
      join windlass.jobs as j on j.seq = u.seq and j.state = 'pending' and j.due = 0 and j.run_at = u.run_at
     where u.aside = 1 and j.run_at > :now
)
select case when tenant in (select json_array_elements_text(cast(:tenants as json))) then tenant else cast(:other as text) end as tenant,
       view, cast(sum(count) as bigint) as count, min(since) as since
  from (select tenant, 'due' as view, count(*) as count, min(run_at) as since
          from windlass.jobs where due = 1 group by 1
        union all
        select tenant,
               case when run_at >= :never then 'waiting' when run_at <= :now then 'due'
                    when attempts > 0 then 'retrying' else 'scheduled' end,
               count(*), min(run_at)
          from windlass.jobs where state = 'pending' and due = 0 group by 1, 2
        union all
        select tenant, 'unreadable', count(*), min(since) from aside group by 1
        union all
        select tenant,
               case when run_at >= :never then 'waiting' when attempts > 0 then 'retrying' else 'scheduled' end,
               -count(*), min(run_at)
          from aside group by 1, 2
        union all
        select tenant, case when lease_until < :now then 'stuck' else 'processing' end, count(*), min(started_at)
          from windlass.jobs where state = 'processing' group by 1, 2
        union all
        select tenant, 'dead', count(*), min(finished_at)
          from windlass.jobs where state = 'dead' group by 1) as live
 group by 1, 2
having sum(count) > 0;

-- name: sample_tenants [sqlite]
-- Where the live jobs of the tenants stand that operators name (`tenants` is JSON), those of all others together. Not run
-- unless some are named.
with aside as (
    select j.tenant, j.attempts, j.run_at, u.since
      from windlass.unread as u
      join windlass.jobs as j on j.seq = u.seq and j.state = 'pending' and j.due = 0 and j.run_at = u.run_at
     where u.aside = 1 and j.run_at > :now
)
select case when tenant in (select value from json_each(:tenants)) then tenant else :other end as tenant,
       view, cast(sum(count) as bigint) as count, min(since) as since
  from (select tenant, 'due' as view, count(*) as count, min(run_at) as since
          from windlass.jobs where due = 1 group by 1
        union all
        select tenant,
               case when run_at >= :never then 'waiting' when run_at <= :now then 'due'
                    when attempts > 0 then 'retrying' else 'scheduled' end,
               count(*), min(run_at)
          from windlass.jobs where state = 'pending' and due = 0 group by 1, 2
        union all
        select tenant, 'unreadable', count(*), min(since) from aside group by 1
        union all
        select tenant,
               case when run_at >= :never then 'waiting' when attempts > 0 then 'retrying' else 'scheduled' end,
               -count(*), min(run_at)
          from aside group by 1, 2
        union all
        select tenant, case when lease_until < :now then 'stuck' else 'processing' end, count(*), min(started_at)
          from windlass.jobs where state = 'processing' group by 1, 2
        union all
        select tenant, 'dead', count(*), min(finished_at)
          from windlass.jobs where state = 'dead' group by 1) as live
 group by 1, 2
having sum(count) > 0;

-- name: count_enqueued
-- Jobs by type that came in between two numbers, wherever they are now; and whether it is certain that no other will
-- come in up to theirs.
select type, seq <= :settled as settled, count(*) as count
  from (select type, seq from windlass.jobs where seq > :since and seq <= :until
        union all
        select type, seq from windlass.archive where seq > :since and seq <= :until) as came
 group by 1, 2;

-- name: uncommitted
-- Jobs that were counted as enqueued beyond the number up to which that is certain.
select type, count from windlass.uncommitted;

-- name: forget_uncommitted
-- Make room for what is counted anew.
delete from windlass.uncommitted;

-- name: note_uncommitted
-- Jobs that will be counted again.
insert into windlass.uncommitted (type, count) values (:type, :count);
