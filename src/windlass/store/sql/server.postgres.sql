-- What a person should know about the server.
select current_setting('server_version') as version,
       (select coalesce(sum(pg_total_relation_size(c.oid)), 0)
          from pg_class as c where c.relnamespace = 'windlass'::regnamespace and c.relkind in ('r', 'm')) as size,
       (select coalesce(max(extract(epoch from clock_timestamp() - a.xact_start)), 0)
          from pg_stat_activity as a where a.backend_xmin is not null and a.pid <> pg_backend_pid()) as oldest,
       (select format('process %s (%s, user %s, %s)', a.pid, coalesce(nullif(a.application_name, ''), 'unnamed'), a.usename,
                      a.state)
          from pg_stat_activity as a
         where a.backend_xmin is not null and a.pid <> pg_backend_pid()
         order by a.xact_start limit 1) as holder;
