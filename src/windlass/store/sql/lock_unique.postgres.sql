-- Nobody else takes this name before this transaction ends. Who starts or ends jobs need not ask: they only free it.
select pg_advisory_xact_lock(hashtextextended('windlass.unique:' || cast(:name as text), 0));
