-- How many jobs of a batch stand where?
select state, count(*) as count
  from (select state from windlass.jobs where batch = :id
        union all
        select state from windlass.archive where batch = :id) as members
 group by state;
