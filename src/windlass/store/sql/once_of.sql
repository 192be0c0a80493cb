-- Was this side effect done, or only begun? And does the lease still hold?
select o.done
  from windlass.jobs as j left join windlass.once as o on o.job_id = j.id and o.key = :key
 where j.seq = :seq and j.token = :token;
