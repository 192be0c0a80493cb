-- Something was set, paused or switched: workers see it with their next look.
insert into windlass.revisions (name, value)
values ('flow', 1)
on conflict (name) do update set value = excluded.value + windlass.revisions.value;
