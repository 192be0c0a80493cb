-- Of which name shall a job be the only one?
select unique_name from windlass.jobs where seq = :seq;
