-- For whom does this job wait, and how do they stand? All at once: there may be a thousand, and one that is dead tells more
-- than all the others. One without a state is gone.
select d.parent_id, coalesce(j.state, a.state) as state
  from windlass.dependencies as d
  left join windlass.jobs as j on j.id = d.parent_id
  left join windlass.archive as a on a.id = d.parent_id
 where d.child_id = :child_id
 order by d.parent_id;
