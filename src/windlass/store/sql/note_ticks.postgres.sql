-- What must happen again and again has succeeded; all that one process has to tell, in one statement. In the order of
-- the names, so that two never wait for each other.
insert into windlass.ticks (name, at, who)
select key, coalesce(cast(:now as bigint), windlass.now()) - cast(value as bigint), cast(:who as text)
  from json_each_text(cast(:ages as json)) order by key
on conflict (name) do update set at = excluded.at, who = excluded.who;
