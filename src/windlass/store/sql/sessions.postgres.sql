-- How many sessions there are of how many, who listens, and which settings hold that are not ours to choose.
select (select count(*) from pg_stat_activity where backend_type = 'client backend') as sessions,
       (select count(*)
          from pg_stat_activity
         where datname = current_database() and application_name = 'windlass' and query ilike 'listen %') as listeners,
       cast(current_setting('max_connections') as integer) as most_sessions,
       current_setting('fsync') as fsync,
       current_setting('full_page_writes') as full_page_writes,
       current_setting('autovacuum') as autovacuum,
       current_setting('track_counts') as track_counts;
