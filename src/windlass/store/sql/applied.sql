-- The migrations that this database has seen.
select number, kind from windlass.schema order by number;
