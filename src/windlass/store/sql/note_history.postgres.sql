-- Keep how much waited: by minute the newest word, by hour and day the largest.
insert into windlass.history as held (step, at, type, name, value)
select steps.step, steps.at, each ->> 0, each ->> 1, cast(each ->> 2 as bigint)
  from json_array_elements(cast(:rows as json)) as each,
       (values ('minute', cast(:minute as bigint)), ('hour', cast(:hour as bigint)),
               ('day', cast(:day as bigint))) as steps (step, at)
 order by 1, 2, 3, 4
on conflict (step, at, type, name) do update
   set value = case held.step when 'minute' then excluded.value else greatest(held.value, excluded.value) end;
