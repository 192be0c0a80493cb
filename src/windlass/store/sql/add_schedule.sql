-- Enter a schedule. No row: somebody has that name.
insert into windlass.schedules
       (name, type, payload, schema_version, cron, every, tz, catch_up, overlap, jitter, priority, max_attempts,
        tenant, source, next_at, created_at, updated_at)
values (:name, :type, :payload, :schema_version, :cron, :every, :tz, :catch_up, :overlap, :jitter, :priority,
        :max_attempts, :tenant, :source, :next_at, :now, :now)
on conflict (name) do nothing
returning name;
