-- A limit that nobody has counted under yet.
insert into windlass.limits (name) values (:name) on conflict (name) do nothing;
