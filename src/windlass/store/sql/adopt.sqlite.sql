-- Running jobs of a type that were claimed before its limit was known count under it from now on. No fence: nothing that
-- their workers know of them is changed.
update windlass.jobs
   set limit_key = :limit_key
 where state = 'processing' and type = :type and limit_key is not :limit_key;
