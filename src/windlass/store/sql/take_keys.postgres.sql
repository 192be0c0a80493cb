-- Take keys for jobs, in order, so that two batches with the same keys do not wait for each other. What is missing in
-- the answer belongs to somebody.
insert into windlass.keys (caller, key, job_id, digest)
select g.caller, g.key, g.id, g.digest
  from unnest(cast(:callers as text[]), cast(:keys as text[]), cast(:ids as uuid[]), cast(:digests as text[]))
       as g (caller, key, id, digest)
 order by g.caller, g.key
on conflict (caller, key) do nothing
returning caller, key;
