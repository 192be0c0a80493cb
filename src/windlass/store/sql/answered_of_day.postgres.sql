-- The same for one day whose records are about to go.
delete from windlass.keys as k
 using (select k.caller, k.key
          from windlass.keys as k join windlass.archive as a on a.id = k.job_id
         where k.answered = 1 and a.finished_at >= :since and a.finished_at < :before
         limit :limit) as old
 where k.caller = old.caller and k.key = old.key;
