-- Accept one job of which only this row is written. Outside a transaction the statement is one by itself: it takes the
-- write lock, and has committed when it ends. It gives no row back, which saves a table that SQLite would make for that.
insert into windlass.jobs (
    seq, id, type, state, priority, due, tenant, payload, schema_version, caller, traceparent,
    max_attempts, created_at, enqueued_at, updated_at, run_at
) values (
    1 + max(
        coalesce((select max(seq) from windlass.jobs), 0),
        coalesce((select max(seq) from windlass.archive), 0),
        coalesce((select value from windlass.numbers where name = 'seq'), 0)
    ),
    :id, :type, 'pending', :priority, :due, :tenant, :payload, :schema_version, :caller, :traceparent,
    :max_attempts, :now, :now, :now, :run_at
)
on conflict (id) do nothing;
