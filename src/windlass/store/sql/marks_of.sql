-- A running job that others wait for, or that is one of a batch.
select batch, has_dependents from windlass.jobs where seq = :seq and token = :token;
