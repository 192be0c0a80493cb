-- While a store is closing for a move, what runs may end, and what is enqueued by its end belongs to that.
update windlass.moves set passing = :passing where state = 'closing';
