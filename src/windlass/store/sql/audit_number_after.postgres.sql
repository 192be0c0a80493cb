-- New lines of the audit log get numbers above those that were copied.
select setval(pg_get_serial_sequence('windlass.audit', 'seq'), greatest(1, (select max(seq) from windlass.audit)));
