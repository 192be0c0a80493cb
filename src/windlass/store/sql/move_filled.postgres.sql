-- The jobs are here.
update windlass.moves set state = 'filled' where id = :id and state = 'filling';
