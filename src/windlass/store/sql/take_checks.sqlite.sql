-- Take checks that are due; nobody else takes them before `again`.
update windlass.checks
   set due_at = :again, takes = takes + 1
 where job_id in (
     select job_id from windlass.checks where type = :type and due_at <= :now order by due_at limit :limit
 )
returning job_id, type, takes;
