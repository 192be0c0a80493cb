-- The live rows of jobs that have just moved to the archive, each fenced by its own token.
with done (seq, token) as (select json_extract(value, '$[0]'), json_extract(value, '$[1]') from json_each(:done))
delete from windlass.jobs
 where seq in (
     select j.seq
       from done as d
      cross join windlass.jobs as j
      cross join windlass.archive as a
      where j.seq = d.seq and j.token = d.token and a.seq = d.seq
 );
