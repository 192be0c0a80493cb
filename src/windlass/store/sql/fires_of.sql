-- The last fire times of a schedule, newest first.
select * from windlass.fires where schedule = :schedule order by fire_at desc, id desc limit :limit;
