-- The condition of an alert holds; since when is known from before.
insert into windlass.alerts (name, labels, since, seen_at, value)
values (:name, :labels, :now, :now, :value)
on conflict (name, labels) do update set seen_at = excluded.seen_at, value = excluded.value;
