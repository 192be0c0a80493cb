-- How many jobs of a type wait.
insert into windlass.depths (type, pending, counted_at)
values (:type, :pending, :now)
on conflict (type) do update set pending = excluded.pending, counted_at = excluded.counted_at;
