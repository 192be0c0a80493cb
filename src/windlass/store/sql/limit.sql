-- When does a limit's rate have a token? A look, which locks nothing.
select next_at from windlass.limits where name = :name;
