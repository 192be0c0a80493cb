-- Has nobody made anything in this file yet? Then it is ours to set up.
select not exists (select 1 from sqlite_master) as empty;
