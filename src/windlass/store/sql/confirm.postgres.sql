-- Lets the commit wait for its synchronous replica, if there is one, although nothing was changed (see flush). A job that is found
-- may have been committed without: by a server that was killed, or in a wait that was cut short. To answer with it would promise
-- what a failover can lose.
select number from windlass.schema where number = 1 and current_setting('synchronous_standby_names') <> '' for key share;
