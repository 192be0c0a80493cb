-- Some keys of the records of one day, which are about to go.
delete from windlass.keys as k
 using (select a.caller, a.key, a.id
          from windlass.archive as a join windlass.keys as k on k.caller = a.caller and k.key = a.key and k.job_id = a.id
         where a.finished_at >= :since and a.finished_at < :before
         limit :limit) as old
 where k.caller = old.caller and k.key = old.key and k.job_id = old.id;
