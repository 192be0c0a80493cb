-- The catalogue of types.
select name, schema_version, schema, options from windlass.types order by name;
