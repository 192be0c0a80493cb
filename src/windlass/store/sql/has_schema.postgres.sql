-- Has this database our tables?
select to_regclass('windlass.schema') is not null as schema;
