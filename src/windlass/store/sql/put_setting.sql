-- Set one thing.
insert into windlass.settings (name, value, updated_at)
values (:name, :value, :now)
on conflict (name) do update set value = excluded.value, updated_at = excluded.updated_at;
