-- A move that is not over is taken back.
delete from windlass.moves where id = :id and state in ('closing', 'closed');
