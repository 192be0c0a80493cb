-- Take the write lock in a transaction that may hold none yet; nothing is changed. Whoever reads first and writes then is
-- refused at once while anybody else writes, however long the connection would wait.
update windlass.numbers set value = value where false;
