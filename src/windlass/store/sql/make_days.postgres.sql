-- The archive's partitions from the day of a time on, as far as they are missing.
select windlass.make_days(:now, cast(:days as integer));
