-- How many archived jobs match, counted up to a bound.
select count(*) as count
  from (select 1 from windlass.archive where seq < :before /*where*/ limit :limit) as found;
