-- Lets the commit wait for its synchronous replica, if there is one, although nothing was changed. A job that is found may have
-- been committed without: by a server that was killed, or in a wait that was cut short. To answer with it would promise what a
-- failover can lose.
select case when current_setting('synchronous_standby_names') <> '' then pg_logical_emit_message(true, 'windlass', '') end;
