-- What was committed before this, and did not wait for disk and replica, is durable when this is: it writes to the log, and so
-- its own commit waits for all that stands there before it.
select pg_logical_emit_message(true, 'windlass', '');
