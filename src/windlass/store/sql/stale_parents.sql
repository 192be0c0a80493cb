-- Jobs that have ended, or are gone, while others still wait for them.
select distinct d.parent_id
  from windlass.dependencies as d
  left join windlass.jobs as j on j.id = d.parent_id
 where j.id is null or (j.state = 'dead' and d.policy <> 'wait')
 limit :limit;
