-- What must happen again and again has succeeded; all that one process has to tell, in one statement.
insert into windlass.ticks (name, at, who)
select key, :now - value, :who from json_each(:ages) where true
on conflict (name) do update set at = excluded.at, who = excluded.who;
