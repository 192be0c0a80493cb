-- What became of a schedule's fire times goes with it; the jobs stay.
delete from windlass.fires where schedule = :schedule;
