-- For whom does this job wait?
select parent_id from windlass.dependencies where child_id = :child_id order by parent_id;
