-- A move that was taken back leaves nothing behind.
delete from windlass.moves where id = :id and state = 'filling';
