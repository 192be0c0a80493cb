-- When has a limit's rate a token again? For who looks only: nobody is kept from counting.
select next_at from windlass.limits where name = :name;
