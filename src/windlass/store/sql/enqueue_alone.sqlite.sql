-- Accept one job of which only this row is written. Outside a transaction the statement is one by itself: it takes the
-- write lock, and has committed when it ends. It gives no row back, which saves a table that SQLite would make for that.
insert into windlass.jobs (
    seq, state, created_at, enqueued_at, updated_at,
    id, type, priority, due, tenant, payload, schema_version, caller, traceparent, max_attempts, run_at
) values
    /*row*/(
        1 + max(
            coalesce((select max(seq) from windlass.jobs), 0),
            coalesce((select max(seq) from windlass.archive), 0),
            coalesce((select value from windlass.numbers where name = 'seq'), 0)
        ),
        'pending', :created_at, :enqueued_at, :updated_at,
        :id, :type, :priority, :due, :tenant, :payload, :schema_version, :caller, :traceparent, :max_attempts, :run_at
    )/*row*/
on conflict (id) do nothing;
