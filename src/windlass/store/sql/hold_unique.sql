-- A job that was stored in this transaction takes a name. No fence: it has no lease.
update windlass.jobs
   set unique_name = :name, unique_until = :until, unique_claims = claims
 where id = :id and state = 'pending';
