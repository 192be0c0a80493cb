-- Keep the last fire times of a schedule.
delete from windlass.fires
 where schedule = :schedule
   and fire_at < (select fire_at from windlass.fires
                   where schedule = :schedule
                   order by fire_at desc
                   limit 1 offset :keep);
