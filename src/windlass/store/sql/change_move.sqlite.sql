-- A move goes on to its next state, if nobody else carries it on and nobody took it back.
update windlass.moves set state = :after where id = :id and state = :before;
