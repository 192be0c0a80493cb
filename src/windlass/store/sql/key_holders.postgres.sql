-- Whose keys are they?
select k.caller, k.key, k.job_id, k.digest
  from unnest(cast(:callers as text[]), cast(:keys as text[])) as g (caller, key)
  join windlass.keys as k on k.caller = g.caller and k.key = g.key;
