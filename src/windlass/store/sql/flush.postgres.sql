-- What was committed before this, and did not wait for disk and replica, is durable when this is: a lock on a row stands in the log,
-- and so its own commit waits for all that stands there before it. Nobody ever waits for the lock: each takes a row that is free,
-- and only if none is they share the first, which is there as long as the schema is. For each that shares a row the server
-- keeps a list of who does, until it freezes the table. A message in the log would do the same, but its function may have been
-- taken away from us.
with own as materialized (
    select number from windlass.schema limit 1 for no key update skip locked
),
shared as materialized (
    select number from windlass.schema where number = 1 and not exists (select 1 from own) for key share
)
select number from own
union all
select number from shared;
