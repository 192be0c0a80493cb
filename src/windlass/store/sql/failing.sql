-- Of what were failures noted lately?
select distinct name from windlass.failures;
