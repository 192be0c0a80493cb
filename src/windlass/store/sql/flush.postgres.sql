-- What was committed before this, and did not wait for disk and replica, is durable when this is: a lock on a row stands in the log,
-- and so its own commit waits for all that stands there before it. Any number of sessions may have this lock at once, and
-- nobody ever waits for it; the row is there as long as the schema is. A message in the log would do the same, but its function
-- may have been taken away from us.
select number from windlass.schema where number = 1 for key share;
