-- Of how many different jobs were failures noted under a name, and since when?
select count(*) as jobs, min(failed_at) as first from windlass.failures where name = :name;
