-- A probe succeeded: all is well again. Its token says that it is the probe, and the last one.
update windlass.breakers
   set state = 'closed', changed_at = :now, who = '', why = 'a probe succeeded', probe_at = null, probe_seq = null,
       probe_token = null
 where name = :name and state = 'open' and by_hand = 0 and probe_token = :token;
