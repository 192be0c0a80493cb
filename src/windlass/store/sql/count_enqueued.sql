-- Jobs by type that came in between two numbers, wherever they are now; and whether it is certain that no other will
-- come in up to theirs.
select type, seq <= :settled as settled, count(*) as count
  from (select type, seq from windlass.jobs where seq > :since and seq <= :until
        union all
        select type, seq from windlass.archive where seq > :since and seq <= :until) as came
 group by 1, 2;
