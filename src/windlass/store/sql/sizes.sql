-- How many rows there are, counted up to a bound.
select (select count(*) from (select 1 from windlass.jobs limit :limit) as live) as live,
       (select count(*) from (select 1 from windlass.archive limit :limit) as ended) as archived;
