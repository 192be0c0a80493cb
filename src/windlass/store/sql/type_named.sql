-- A type of the catalogue.
select name, schema_version, schema, options from windlass.types where name = :name;
