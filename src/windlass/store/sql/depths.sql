-- How many jobs wait, as last counted.
select type, pending, counted_at from windlass.depths;
