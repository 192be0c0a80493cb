-- Take checks that are due; nobody else takes them before `again`.
update windlass.checks as c
   set due_at = :again, takes = c.takes + 1
  from (select job_id
          from windlass.checks
         where type = :type and due_at <= :now
         order by due_at
         limit :limit
           for update skip locked) as due
 where c.job_id = due.job_id
returning c.job_id, c.type, c.takes;
