-- Somebody tells its counts; changes nothing if it has told this flush before, and its answer was lost.
insert into windlass.flushes as held (teller, number, told_at)
values (:teller, :number, :now)
on conflict (teller) do update
   set number = excluded.number, told_at = excluded.told_at
 where held.number < excluded.number;
