-- Free the keys of records that are gone, but only from the jobs that are known to have had them.
delete from windlass.keys as k
 using unnest(cast(:callers as text[]), cast(:keys as text[]), cast(:ids as uuid[])) as g (caller, key, id)
 where k.caller = g.caller and k.key = g.key and k.job_id = g.id;
