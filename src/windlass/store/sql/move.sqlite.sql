-- What this store remembers of its move to another.
select id, state, place, began_at from windlass.moves;
