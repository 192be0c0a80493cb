-- One parent less; without any the job runs at its own time. No fence: a job that waits has no lease.
update windlass.jobs
   set waits_for = waits_for - 1,
       due = case when waits_for = 1 and state = 'pending' then :due else due end,
       run_at = case when waits_for = 1 then :run_at else run_at end
 where id = :id and waits_for > 0 and state in ('pending', 'dead');
