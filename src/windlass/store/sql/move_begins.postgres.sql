-- A move begins to fill this store.
insert into windlass.moves (id, state, place, began_at) values (:id, 'filling', :place, :began_at);
