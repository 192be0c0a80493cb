-- Where a limit's rate stands. One writer at a time, so nobody else counts meanwhile.
select next_at from windlass.limits where name = :name;
