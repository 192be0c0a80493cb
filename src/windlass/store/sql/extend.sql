-- Move a lease's end. The token is the fence: a worker that lost its lease moves nothing.
update windlass.jobs set lease_until = :until where seq = :seq and token = :token;
