-- name: note_schema
-- A process of a release was seen. A release that is known keeps its place in the order of releases.
insert into windlass.schemas (name, digest, schema_version, schema, options, app, first_at, seen_at, silent)
values (:name, :digest, :schema_version, :schema, :options, :app, :now, :now, 0)
on conflict (name, digest) do update
   set seen_at = excluded.seen_at,
       app = excluded.app,
       first_at = case when windlass.schemas.first_at = 0 then excluded.first_at else windlass.schemas.first_at end,
       silent = 0
 where windlass.schemas.silent = 1 or windlass.schemas.seen_at < :stale;

-- name: catalogue
-- The catalogue: the row of each type that processes of every release write, and the entries of the releases that were seen
-- within `longest` of the last one seen.
select t.name, t.digest, t.schema_version, t.schema, t.options, 0 as first_at, 0 as seen_at, 1 as silent, 1 as shared,
       (select c.value from windlass.settings as c where c.name = 'keep_schemas') as keep
  from windlass.types as t
 union all
select s.name, s.digest, s.schema_version, s.schema, s.options, s.first_at, s.seen_at, s.silent, 0 as shared, null as keep
  from windlass.schemas as s
 where s.seen_at >= (select max(o.seen_at) from windlass.schemas as o where o.name = s.name) - :longest;

-- name: note_silent_schema
-- An older process has written its entry into windlass.types, and does not say how long it stays. No matter when it started,
-- it is older than every release that says so.
insert into windlass.schemas (name, digest, schema_version, schema, options, first_at, seen_at, silent)
values (:name, :digest, :schema_version, :schema, :options, 0, :now, 1)
on conflict (name, digest) do update
   set seen_at = excluded.seen_at, silent = 1
 where windlass.schemas.seen_at < :stale;

-- name: put_type
-- What processes of older releases read: the entry that holds now.
insert into windlass.types (name, schema_version, schema, options, digest, created_at, updated_at)
values (:name, :schema_version, :schema, :options, :digest, :now, :now)
on conflict (name) do update
   set schema_version = excluded.schema_version,
       schema = excluded.schema,
       options = excluded.options,
       digest = excluded.digest,
       updated_at = excluded.updated_at
 where excluded.schema_version <> windlass.types.schema_version
    or excluded.schema <> windlass.types.schema
    or excluded.options <> windlass.types.options
    or excluded.digest <> windlass.types.digest;

-- name: schemas_of_type
-- Every schema that a type has had, also of releases that are gone.
select schema_version, schema from windlass.schemas where name = :name
 union
select schema_version, schema from windlass.types where name = :name;

-- name: types
-- The catalogue of types.
select name, schema_version, schema, options from windlass.types order by name;
