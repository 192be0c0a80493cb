-- Keep a sample. `rows` is JSON: [[type, priority, view, count, since], ...].
insert into windlass.samples (type, priority, view, count, since)
select each ->> 0, cast(each ->> 1 as smallint), each ->> 2, cast(each ->> 3 as bigint), cast(each ->> 4 as bigint)
  from json_array_elements(cast(:rows as json)) as each;
