-- New jobs get numbers above every one that was ever given.
select setval('windlass.jobs_seq_seq', greatest(:highest, (select last_value from windlass.jobs_seq_seq)));
