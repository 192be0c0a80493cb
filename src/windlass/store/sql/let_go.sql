-- The work has ended.
delete from windlass.held where token = :token;
