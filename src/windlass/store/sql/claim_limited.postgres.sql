-- Take the picked jobs of a limited type: running, they hold its permits. The limit is locked, yet who does not know of it
-- may have taken some of them. No fence: this is where the token is made, with the mark of a request at its end.
with picked as materialized (
    select j.spot
      from json_array_elements_text(cast(:picked as json)) as p (seq),
           lateral (select j.ctid as spot
                      from windlass.jobs as j
                     where j.seq = cast(p.seq as bigint) and j.due > 0
                       for update skip locked) as j
)
update windlass.jobs as j
   set state = 'processing',
       due = 0,
       attempts = j.attempts + 1,
       claims = j.claims + 1,
       worker = :worker,
       token = case when cast(:mark as text) is null then gen_random_uuid()
                    else cast(left(replace(cast(gen_random_uuid() as text), '-', ''), 16) || :mark as uuid) end,
       lease_until = :until,
       started_at = :now,
       updated_at = :now,
       limit_key = :limit_key
  from picked
 where j.ctid = picked.spot
returning j.*;
