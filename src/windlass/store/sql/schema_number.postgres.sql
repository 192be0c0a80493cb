-- The last migration that this database has seen.
select max(number) as number from windlass.schema;
