-- name: claim [sqlite]
-- Take the picked jobs. One writer at a time, so nobody can have taken them since they were picked.
-- No fence: this is where the token is made.
update windlass.jobs
   set {claim_set}
 where seq in (select value from json_each(:picked));

-- name: claimed [sqlite]
-- The jobs that were taken just now, all in one value: row by row, each would make its thread wait for the others' turn at the
-- interpreter. What is the same for all of them is not told.
select json_group_array(json_array(
           {taken}
       )) as taken
  from windlass.jobs
 where seq in (select value from json_each(:picked));

-- name: unread_for [sqlite]
-- Jobs that are aside and that this release has not tried.
select u.seq
  from windlass.unread as u
 where u.aside = 1 and u.type in (select value from json_each(:types)) and instr(u.readers, :reader) = 0
 order by u.type, u.readers, u.field, u.seq
 limit :limit;

-- name: unread_due [sqlite]
-- These become due again; one that is no longer as it was left stays as it is. No fence: pending jobs have no lease.
update windlass.jobs
   set due = 1, run_at = :now
 where run_at = (select u.run_at from windlass.unread as u where u.seq = windlass.jobs.seq)
   and seq in (select value from json_each(:seqs)) and state = 'pending' and due = 0;

-- name: show_unread [sqlite]
-- They are aside no more.
update windlass.unread set aside = 0 where seq in (select value from json_each(:seqs));

-- name: promote_type
-- The same for one type: a worker must not wait until the jobs of others have been promoted.
update windlass.jobs
   set due = 1
 where seq in (
     select seq from windlass.jobs
      where state = 'pending' and due = 0 and type = :type and run_at <= :now
      order by run_at
      limit :limit
 );
