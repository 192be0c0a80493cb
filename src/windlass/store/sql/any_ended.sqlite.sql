-- Has one of these ended before?
select 1 from windlass.archive where id in (select value from json_each(:ids)) limit 1;
