-- When what must happen again and again last succeeded.
select name, at, who from windlass.ticks order by name;
