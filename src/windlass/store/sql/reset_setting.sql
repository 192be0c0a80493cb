-- Forget one setting.
delete from windlass.settings where name = :name;
