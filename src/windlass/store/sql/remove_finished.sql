-- The live row of a job that has just moved to the archive.
delete from windlass.jobs where seq = :seq and token = :token;
