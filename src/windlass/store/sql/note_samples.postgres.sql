-- Keep a sample. `rows` is JSON: [[type, priority, view, tenant, count, since], ...].
insert into windlass.samples (type, priority, view, tenant, count, since)
select each ->> 0, cast(each ->> 1 as smallint), each ->> 2, each ->> 3, cast(each ->> 4 as bigint), cast(each ->> 5 as bigint)
  from json_array_elements(cast(:rows as json)) as each;
