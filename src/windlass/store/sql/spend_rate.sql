-- Jobs start under a rate: when may the next one?
update windlass.limits set next_at = :next_at where name = :name;
