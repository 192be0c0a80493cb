-- How many records of a day are left, counted up to a bound.
select count(*) as count
  from (select 1 from windlass.archive where finished_at >= :since and finished_at < :before limit :limit) as left_over;
