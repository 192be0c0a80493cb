-- What became of a fire time.
insert into windlass.fires (id, schedule, fire_at, outcome, until_at, job_id, made_by, noted_at)
values (:id, :schedule, :fire_at, :outcome, :until_at, :job_id, :made_by, :now)
on conflict do nothing;
