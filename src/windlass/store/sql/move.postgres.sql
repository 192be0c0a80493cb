-- What this store remembers of a move to here.
select id, state, place, began_at, copied from windlass.moves order by began_at desc limit 1;
