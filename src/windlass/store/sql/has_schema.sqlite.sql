-- Has this file our tables?
select exists (select 1 from sqlite_master where type = 'table' and name = 'windlass_schema') as schema;
