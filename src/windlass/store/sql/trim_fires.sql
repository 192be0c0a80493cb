-- Keep the last fire times of a schedule, and those whose runs have not ended: the next one asks for them. Of all that came
-- before, only some are looked at: those that have just left the last ones, and the oldest, which end first. So a schedule
-- whose jobs wait for long costs no more than any other.
with kept as materialized (
    select fire_at from windlass.fires where schedule = :schedule order by fire_at desc limit 1 offset :keep
),
oldish as materialized (
    select * from (select id, job_id from windlass.fires
                    where schedule = :schedule and fire_at < (select fire_at from kept)
                    order by fire_at desc limit :limit) as newest
     union
    select * from (select id, job_id from windlass.fires
                    where schedule = :schedule and fire_at < (select fire_at from kept)
                    order by fire_at limit :limit) as oldest
)
delete from windlass.fires
 where id in (select oldish.id
                from oldish
               where not exists (select 1 from windlass.jobs as j
                                  where j.id = oldish.job_id and j.state in ('pending', 'processing')));
