-- The archive's partitions from the day of a time on, as far as they are missing; of now, if none is given.
select windlass.make_days(at.now, cast(:days as integer)), at.now
  from (select coalesce(cast(:now as bigint), windlass.now()) as now) as at;
