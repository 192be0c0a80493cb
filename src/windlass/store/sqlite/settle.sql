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
