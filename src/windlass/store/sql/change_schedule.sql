-- Give a schedule other times or another job; whether it is paused is the operator's.
update windlass.schedules
   set type = :type, payload = :payload, schema_version = :schema_version, cron = :cron, every = :every, tz = :tz,
       catch_up = :catch_up, overlap = :overlap, jitter = :jitter, priority = :priority,
       max_attempts = :max_attempts, tenant = :tenant, source = :source, next_at = :next_at, withdrawn = 0,
       problem = null, updated_at = :now
 where name = :name;
