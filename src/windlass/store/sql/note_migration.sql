-- A migration has been applied. One that runs statement by statement may be noted by whoever repeats it.
insert into windlass.schema (number, name, kind, applied_at) values (:number, :name, :kind, :now)
on conflict (number) do nothing;
