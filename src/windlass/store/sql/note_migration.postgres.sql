-- A migration has been applied.
insert into windlass.schema (number, name, applied_at) values (:number, :name, :now);
