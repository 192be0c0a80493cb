-- name: live_numbers
-- From which number to which are there live jobs?
select min(seq) as lowest, max(seq) as highest from windlass.jobs;

-- name: start_operation
-- A new operation, which any process may carry at once. The same request again finds it there.
insert into windlass.operations (id, verb, filter, arguments, rate, most, expected, at_least, who, why, state, place, last,
                                 chunk, reached, error, owner, lease_until, created_at, updated_at)
values (:id, :verb, :filter, :arguments, :rate, :most, :expected, :at_least, :who, :why, 'running', :place, :last,
        '[]', :reached, '', '', :now, :now, :now)
on conflict (id) do nothing;

-- name: operation
-- One operation.
select * from windlass.operations where id = :id;

-- name: lock_operation
-- One operation, of which nobody else changes anything meanwhile.
select * from windlass.operations where id = :id;

-- name: lock_operation [postgres]
-- One operation, of which nobody else changes anything meanwhile.
select * from windlass.operations where id = :id for update;

-- name: operations
-- The newest operations.
select * from windlass.operations order by created_at desc, id desc limit :limit;

-- name: operation_waits
-- Does an operation wait for a process that carries it?
select exists (select 1 from windlass.operations where state = 'running' and lease_until <= :now) as waits;

-- name: take_operation
-- Become the one who carries an operation, if nobody does. The new token is the fence: who had it before moves nothing on.
update windlass.operations
   set token = :token, owner = :owner, lease_until = :until
 where id = (select id from windlass.operations
              where state = 'running' and lease_until <= :now and (cast(:only as text) = '' or id = :only)
              order by lease_until
              limit 1)
returning *;

-- name: take_operation [postgres]
-- Become the one who carries an operation, if nobody does. The new token is the fence: who had it before moves nothing on.
update windlass.operations
   set token = :token, owner = :owner, lease_until = :until
 where id = (select id from windlass.operations
              where state = 'running' and lease_until <= :now and (cast(:only as text) = '' or id = :only)
              order by lease_until
              limit 1
                for update skip locked)
returning *;

-- name: advance_operation
-- How far an operation has come. Its row is locked, and was looked at: whoever writes this has the token.
update windlass.operations
   set state = :state, place = :place, chunk = :chunk, reached = :reached, error = :error, lease_until = :until,
       updated_at = :now, ended_at = :ended_at
 where id = :id and token = :token;

-- name: steer_operation
-- Pause, resume or stop an operation. The process that carries it learns of it with its next chunk.
update windlass.operations
   set state = :state, updated_at = :now, ended_at = :ended_at
 where id = :id;

-- name: prune_operations
-- Operations are kept as long as the records of ended jobs.
delete from windlass.operations where ended_at < :ended;
