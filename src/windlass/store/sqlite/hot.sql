-- name: pass_seal [sqlite]
-- While a store is closing for a move, what runs may end, and what is enqueued by its end belongs to that.
update windlass.moves set passing = :passing where state = 'closing';

-- name: enqueue_alone [sqlite]
-- Accept one job of which only this row is written. Outside a transaction the statement is one by itself: it takes the
-- write lock, and has committed when it ends. It gives no row back, which saves a table that SQLite would make for that.
insert into windlass.jobs (
    seq, state, created_at, enqueued_at, updated_at, due, run_at, {new}
) values
    /*row*/(
        1 + max(
            coalesce((select max(seq) from windlass.jobs), 0),
            coalesce((select max(seq) from windlass.archive), 0),
            coalesce((select value from windlass.numbers where name = 'seq'), 0)
        ),
        'pending', :created_at, :enqueued_at, :updated_at, :due, :run_at, {:new}
    )/*row*/
on conflict (id) do nothing;

-- name: enqueue_together [sqlite]
-- Accept many jobs that have no keys: the row between the marks once for each, in their order. Values that come as
-- such take SQLite half as long as those that it has to find in a JSON text. A known id changes nothing; whoever then
-- counts fewer rows than jobs looks at each of them.
insert into windlass.jobs (
    seq, state, created_at, enqueued_at, updated_at, due, run_at, {new}
) values
    /*row*/(
        :seq, 'pending', :created_at, :enqueued_at, :updated_at, :due, :run_at, {:new}
    )/*row*/
on conflict (id) do nothing;

-- name: any_ended [sqlite]
-- Has one of these ended before?
select 1 from windlass.archive where id in (select value from json_each(:ids)) limit 1;

-- name: enqueue [sqlite]
-- Accept one job. A known id changes nothing: the caller then looks for the job that has it.
-- One writer at a time, so the next number is safe to take; a counter of its own would cost a page a commit.
insert into windlass.jobs (
    seq, state, created_at, enqueued_at, updated_at, due, run_at, {new}
) values (
    1 + max(
        coalesce((select max(seq) from windlass.jobs), 0),
        coalesce((select max(seq) from windlass.archive), 0),
        coalesce((select value from windlass.numbers where name = 'seq'), 0)
    ),
    'pending', :now, :now, :now, :due, :run_at, {:new}
)
on conflict (id) do nothing
returning seq;

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

-- name: finish_together [sqlite]
-- Many jobs are completed, each fenced by its own token: their records move to the archive, as `finish` does it for one.
insert into windlass.archive (
    {kept}, state, updated_at, finished_at, last_token, reason, error, result, history, changes
)
select {jobs.kept}, 'completed', :now, :now, token, null, null,
       json_extract(done.value, '$[2]'), json_extract(done.value, '$[3]'), changes
  from json_each(:done) as done
 cross join windlass.jobs as jobs
 where jobs.seq = json_extract(done.value, '$[0]') and jobs.token = json_extract(done.value, '$[1]')
   and batch is null and has_dependents = 0;

-- name: remove_finished_together [sqlite]
-- The live rows of jobs that have just moved to the archive, each fenced by its own token.
with done (seq, token) as (select json_extract(value, '$[0]'), json_extract(value, '$[1]') from json_each(:done))
delete from windlass.jobs
 where seq in (
     select j.seq
       from done as d
      cross join windlass.jobs as j
      cross join windlass.archive as a
      where j.seq = d.seq and j.token = d.token and a.seq = d.seq
 );

-- name: finished_among [sqlite]
-- Which of these leases are settled as completed, now or before?
select archive.last_token
  from json_each(:done) as done
 cross join windlass.archive as archive
 where archive.seq = json_extract(done.value, '$[0]') and archive.last_token = json_extract(done.value, '$[1]');

-- name: standing_request
-- What an operator asked of a running job while its worker was busy.
select request from windlass.jobs where seq = :seq and token = :token;

-- name: settled_before
-- Was this very lease settled already? Then a repeat after a lost answer is no loss.
select 1 from windlass.jobs where seq = :seq and last_token = :token
union all
select 1 from windlass.archive where seq = :seq and last_token = :token;

-- name: remove_finished
-- The live row of a job that has just moved to the archive.
delete from windlass.jobs where seq = :seq and token = :token;

-- name: bury_running
-- A running job goes to the dead letters. The token is the fence.
update windlass.jobs
   set state = 'dead',
       losses = losses + :lost,
       last_token = :last_token,
       token = null,
       lease_until = null,
       request = null,
       reason = :reason,
       error = :error,
       history = :history,
       finished_at = :now,
       updated_at = :now
 where seq = :seq and token = :token and (:marked or (batch is null and has_dependents = 0));

-- name: marks_of
-- A running job that others wait for, or that is one of a batch.
select batch, has_dependents from windlass.jobs where seq = :seq and token = :token;

-- name: note_unread [sqlite]
-- A job was put aside: this release cannot read it.
insert into windlass.unread (seq, type, aside, readers, field, problem, run_at, since)
values (:seq, :type, 1, :reader, :field, :problem, :run_at, :now)
on conflict (seq) do update
   set aside = 1,
       readers = case when instr(windlass.unread.readers, excluded.readers) > 0 then windlass.unread.readers
                      else windlass.unread.readers || ' ' || excluded.readers end,
       field = excluded.field,
       problem = excluded.problem,
       run_at = excluded.run_at;
