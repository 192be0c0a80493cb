-- Told to whoever listens when this transaction commits.
select pg_notify(:channel, '');
