-- Keep the last fire times of a schedule, and those whose runs have not ended: the next one asks for them.
delete from windlass.fires
 where schedule = :schedule
   and fire_at < (select fire_at from windlass.fires
                   where schedule = :schedule
                   order by fire_at desc
                   limit 1 offset :keep)
   and not exists (select 1 from windlass.jobs as j
                    where j.id = windlass.fires.job_id and j.state in ('pending', 'processing'));
