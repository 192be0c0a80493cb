-- Accept many jobs that have no keys: a row for each, in their order. A known id changes nothing; whoever then counts
-- fewer rows than jobs looks at each of them.
insert into windlass.jobs (
    seq, state, created_at, enqueued_at, updated_at,
    id, type, priority, due, tenant, payload, schema_version, caller, traceparent, max_attempts, run_at
)
select 1 + key + (
           select max(
               coalesce((select max(seq) from windlass.jobs), 0),
               coalesce((select max(seq) from windlass.archive), 0),
               coalesce((select value from windlass.numbers where name = 'seq'), 0)
           )
       ),
       'pending', :now, :now, :now,
       json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'),
       json_extract(value, '$[3]'), json_extract(value, '$[4]'), json_extract(value, '$[5]'),
       json_extract(value, '$[6]'), json_extract(value, '$[7]'), json_extract(value, '$[8]'),
       json_extract(value, '$[9]'), json_extract(value, '$[10]')
  from json_each(:jobs)
 where true
on conflict (id) do nothing;
