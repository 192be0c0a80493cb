-- Keep a sample. `rows` is JSON: [[type, priority, view, tenant, count, since], ...].
insert into windlass.samples (type, priority, view, tenant, count, since)
select json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'), json_extract(value, '$[3]'),
       json_extract(value, '$[4]'), json_extract(value, '$[5]')
  from json_each(:rows);
