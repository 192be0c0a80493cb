-- Accept many jobs that have no keys: the row between the marks once for each, in their order. Values that come as
-- such take SQLite half as long as those that it has to find in a JSON text. A known id changes nothing; whoever then
-- counts fewer rows than jobs looks at each of them.
insert into windlass.jobs (
    seq, state, created_at, enqueued_at, updated_at,
    id, type, priority, due, tenant, payload, schema_version, caller, traceparent, max_attempts, run_at
) values
    /*row*/(
        :seq, 'pending', :created_at, :enqueued_at, :updated_at,
        :id, :type, :priority, :due, :tenant, :payload, :schema_version, :caller, :traceparent, :max_attempts, :run_at
    )/*row*/
on conflict (id) do nothing;
