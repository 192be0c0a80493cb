-- Who has been in a transaction for longest, with a snapshot or with something written.
select pid,
       format('process %s (%s, user %s, %s)', pid, coalesce(nullif(application_name, ''), 'unnamed'), usename, state) as holder,
       cast(extract(epoch from clock_timestamp() - xact_start) as double precision) as seconds
  from pg_stat_activity
 where (backend_xmin is not null or backend_xid is not null) and pid <> pg_backend_pid()
   and datname = current_database()
 order by xact_start
 limit 1;
