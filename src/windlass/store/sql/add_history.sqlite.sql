-- Count what happened, in every step at once. `rows` is JSON: [[type, name, value], ...].
insert into windlass.history as held (step, at, type, name, value)
select steps.column1, steps.column2, json_extract(each.value, '$[0]'), json_extract(each.value, '$[1]'),
       json_extract(each.value, '$[2]')
  from json_each(:rows) as each,
       (values ('minute', :minute), ('hour', :hour), ('day', :day), ('ever', 0)) as steps
 where true
on conflict (step, at, type, name) do update set value = held.value + excluded.value;
