-- Which of these leases are settled as completed, now or before?
select archive.last_token
  from json_each(:done) as done
 cross join windlass.archive as archive
 where archive.seq = json_extract(done.value, '$[0]') and archive.last_token = json_extract(done.value, '$[1]');
