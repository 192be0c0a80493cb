-- Empty the catalogue of a store that a move begins to fill: the source's types take its place.
delete from windlass.types;
