-- Enter a type into the catalogue. A newer schema version stays: an old worker must not put the clock back.
insert into windlass.types (name, schema_version, schema, options, created_at, updated_at)
values (:name, :schema_version, :schema, :options, :now, :now)
on conflict (name) do update
   set schema_version = excluded.schema_version,
       schema = excluded.schema,
       options = excluded.options,
       updated_at = excluded.updated_at
 where excluded.schema_version >= windlass.types.schema_version
   and (excluded.schema <> windlass.types.schema or excluded.options <> windlass.types.options);
