-- A running job goes to the dead letters. The token is the fence.
update windlass.jobs
   set state = 'dead',
       losses = losses + :lost,
       last_token = :last_token,
       token = null,
       lease_until = null,
       request = null,
       reason = :reason,
       error = :error,
       history = :history,
       finished_at = :now,
       updated_at = :now
 where seq = :seq and token = :token and (:marked or (batch is null and has_dependents = 0));
