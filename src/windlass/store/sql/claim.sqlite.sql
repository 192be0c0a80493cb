-- Take the picked jobs. One writer at a time, so nobody can have taken them since they were picked.
-- No fence: this is where the token is made, with the mark of a request at its end.
update windlass.jobs
   set state = 'processing',
       due = 0,
       attempts = attempts + 1,
       claims = claims + 1,
       worker = :worker,
       token = coalesce(lower(hex(randomblob(8))) || :mark, lower(hex(randomblob(16)))),
       lease_until = :until,
       started_at = :now,
       updated_at = :now
 where seq in (select value from json_each(:picked));
