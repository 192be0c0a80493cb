-- The move's own transaction passes its seal.
select set_config('windlass.move', :id, true);
