-- Was any failure noted under a name?
select 1 from windlass.failures where name = :name limit 1;
