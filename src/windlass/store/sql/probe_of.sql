-- Which job was let through an open breaker, and still runs?
select j.id
  from windlass.breakers as b
       join windlass.jobs as j on j.seq = b.probe_seq and j.token = b.probe_token
 where b.name = :name;
