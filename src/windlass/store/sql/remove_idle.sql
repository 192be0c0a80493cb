-- The live row of a job that has just ended without running.
delete from windlass.jobs where seq = :seq and state = :expected;
