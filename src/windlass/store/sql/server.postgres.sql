-- What a person should know about the server; above all who keeps dead rows from being cleaned up: whoever has been in a
-- transaction for longest, with a snapshot or with something written.
with holder as materialized (
    select a.*, extract(epoch from clock_timestamp() - a.xact_start) as seconds
      from pg_stat_activity as a
     where (a.backend_xmin is not null or a.backend_xid is not null) and a.pid <> pg_backend_pid()
       and a.datname = current_database()
     order by a.xact_start
     limit 1
)
select current_setting('server_version') as version,
       (select coalesce(sum(pg_total_relation_size(c.oid)), 0)
          from pg_class as c where c.relnamespace = 'windlass'::regnamespace and c.relkind in ('r', 'm')) as size,
       coalesce((select seconds from holder), 0) as oldest,
       (select format('process %s (%s, user %s, %s, last statement begun %s)', pid, coalesce(nullif(application_name, ''), 'unnamed'),
                      usename, state, to_char(query_start at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'))
          from holder) as holder;
