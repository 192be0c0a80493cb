-- Which of these leases are still held (somebody has locked the row at this moment), and which were settled before?
-- What is in neither list is lost.
with given as materialized (
    select * from unnest(cast(:seqs as bigint[]), cast(:tokens as uuid[])) as g (seq, token)
)
select g.token, true as held, j.batch is not null or j.has_dependents = 1 as marked
  from given as g join windlass.jobs as j on j.seq = g.seq and j.token = g.token
union all
select g.token, false, false
  from given as g join windlass.jobs as j on j.seq = g.seq and j.last_token = g.token
union all
select g.token, false, false
  from given as g join windlass.archive as a on a.seq = g.seq and a.last_token = g.token;
