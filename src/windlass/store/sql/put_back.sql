-- A running job becomes pending again: a retry, a snooze or a release. The token is the fence.
update windlass.jobs
   set state = 'pending',
       due = :due,
       run_at = :run_at,
       attempts = attempts - :given_back,
       snoozes = snoozes + :snoozed,
       interruptions = interruptions + :interrupted,
       losses = losses + :lost,
       worker = null,
       last_token = :last_token,
       token = null,
       lease_until = null,
       request = null,
       reason = coalesce(:reason, reason),
       error = coalesce(:error, error),
       history = :history,
       updated_at = :now
 where seq = :seq and token = :token;
