-- What an operator asked of a running job while its worker was busy.
select request from windlass.jobs where seq = :seq and token = :token;
