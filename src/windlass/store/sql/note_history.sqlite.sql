-- Keep how much waited: by minute the newest word, by hour and day the largest.
insert into windlass.history as held (step, at, type, name, value)
select steps.column1, steps.column2, json_extract(each.value, '$[0]'), json_extract(each.value, '$[1]'),
       json_extract(each.value, '$[2]')
  from json_each(:rows) as each, (values ('minute', :minute), ('hour', :hour), ('day', :day)) as steps
 where true
on conflict (step, at, type, name) do update
   set value = case held.step when 'minute' then excluded.value else max(held.value, excluded.value) end;
