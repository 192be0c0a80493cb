-- Jobs that have ended, or are gone, while others still wait for them.
select distinct d.parent_id, coalesce(a.state, j.state) as state
  from windlass.dependencies as d
  left join windlass.jobs as j on j.id = d.parent_id
  left join windlass.archive as a on a.id = d.parent_id
 where j.id is null or (j.state = 'dead' and d.policy <> 'wait')
 limit :limit;
