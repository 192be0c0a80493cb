-- Which of these leases are still held (somebody has locked the row at this moment), and which were settled before?
-- What is in neither list is lost.
with given as materialized (
    select * from unnest(cast(:seqs as bigint[]), cast(:tokens as uuid[])) as g (seq, token)
)
select g.token, j.held, j.held and j.marked as marked
  from given as g,
       lateral (select j.token is not distinct from g.token as held,
                       j.batch is not null or j.has_dependents = 1 as marked
                  from windlass.jobs as j
                 where j.seq = g.seq and g.token in (j.token, j.last_token)
                 limit 1) as j
union all
select g.token, false, false
  from given as g join windlass.archive as a on a.seq = g.seq and a.last_token = g.token;
