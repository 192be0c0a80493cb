-- Accept one job. A known id changes nothing: the caller then looks for the job that has it.
insert into windlass.jobs (
    id, type, state, priority, due, tenant, payload, schema_version, key, caller, traceparent,
    max_attempts, created_at, enqueued_at, updated_at, run_at
) values (
    :id, :type, 'pending', :priority, :due, :tenant, :payload, :schema_version, :key, :caller, :traceparent,
    :max_attempts, :now, :now, :now, :run_at
)
on conflict (id) do nothing
returning seq;
