-- Count what happened, in every step at once. `rows` is JSON: [[type, name, value], ...]. In a fixed order, so that two
-- who count the same never wait for each other.
insert into windlass.history as held (step, at, type, name, value)
select steps.step, steps.at, each ->> 0, each ->> 1, cast(each ->> 2 as bigint)
  from json_array_elements(cast(:rows as json)) as each,
       (values ('minute', cast(:minute as bigint)), ('hour', cast(:hour as bigint)), ('day', cast(:day as bigint)),
               ('ever', 0)) as steps (step, at)
 order by 1, 2, 3, 4
on conflict (step, at, type, name) do update set value = held.value + excluded.value;
