-- What an operator has set under one name.
select value from windlass.settings where name = :name;
