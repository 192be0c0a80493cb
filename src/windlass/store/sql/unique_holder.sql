-- Who holds a name? A job that is unique until its start holds it until the next claim.
select seq, id, type, state, key, caller
  from windlass.jobs
 where unique_name is not null and unique_name = :name and state in ('pending', 'processing')
   and (unique_until = 'done' or claims = unique_claims);
