-- Accept one job. A known id changes nothing: the caller then looks for the job that has it.
-- One writer at a time, so the next number is safe to take; a counter of its own would cost a page a commit.
insert into windlass.jobs (
    seq, id, type, state, priority, due, tenant, payload, schema_version, key, caller, traceparent,
    max_attempts, created_at, enqueued_at, updated_at, run_at
) values (
    1 + max(
        coalesce((select max(seq) from windlass.jobs), 0),
        coalesce((select max(seq) from windlass.archive), 0),
        coalesce((select value from windlass.numbers where name = 'seq'), 0)
    ),
    :id, :type, 'pending', :priority, :due, :tenant, :payload, :schema_version, :key, :caller, :traceparent,
    :max_attempts, :now, :now, :now, :run_at
)
on conflict (id) do nothing
returning seq;
