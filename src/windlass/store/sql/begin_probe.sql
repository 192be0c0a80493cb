-- One job is let through an open breaker; the next one not before the given time, nor before this one has ended.
update windlass.breakers
   set probe_at = :probe_at, probe_seq = :seq, probe_token = :token
 where name = :name and state = 'open';
