-- A job is either live or archived, never both.
select id from windlass.jobs where id in (select id from windlass.archive);
