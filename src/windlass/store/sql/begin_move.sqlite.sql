-- From now on this store is being moved. There is one row at most.
insert into windlass.moves (id, state, place, began_at) values (:id, :state, :place, :began_at);
