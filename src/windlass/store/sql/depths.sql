-- How many jobs of each type waited when the last sample was taken; also when none did, there is a row that says when.
select at.sampled_at, waiting.type, cast(sum(waiting.count) as bigint) as pending
  from windlass.samplings as at
       left join windlass.samples as waiting on waiting.view in ('due', 'scheduled', 'retrying', 'waiting')
                                              and waiting.type <> ''
 where at.id = 1 and at.sampled_at > 0
 group by at.sampled_at, waiting.type;
