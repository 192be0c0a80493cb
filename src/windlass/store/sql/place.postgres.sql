-- Which database of which running server is this, and are our tables in it? A copy of a database on another server
-- has the same name and the same tables, but not the same start.
select cast(oid as text) as database,
       cast(extract(epoch from pg_postmaster_start_time()) as text) as since,
       datname as name,
       to_regclass('windlass.jobs') is not null as ours
  from pg_catalog.pg_database
 where datname = current_database();
