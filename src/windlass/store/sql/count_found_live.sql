-- How many live jobs match, counted up to a bound.
select count(*) as count
  from (select 1 from windlass.jobs where seq < :before /*where*/ limit :limit) as found;
