-- Wait until it is our turn to claim; it is ours until this transaction ends. Who has it may be frozen: after a while this fails, and
-- the caller claims without. What follows in the same transaction sees all that was claimed before. Tells whether there was
-- nobody to wait for.
select case when pg_try_advisory_xact_lock(turn.key) then true
            when set_config('lock_timeout', :patience, true) is not null then cast(pg_advisory_xact_lock(turn.key) as text) is null
       end as free
  from (select hashtextextended('windlass.claim ' || cast(:turn as text), 0) as key) as turn;
