-- Code declares this schedule no more: it is kept to be seen, and fires no more.
update windlass.schedules set withdrawn = 1, updated_at = :now where name = :name;
