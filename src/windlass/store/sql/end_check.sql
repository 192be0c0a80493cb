-- A check is over, if it is still whose it was.
delete from windlass.checks where job_id = :job_id and takes = :takes;
