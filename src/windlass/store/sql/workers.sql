-- Every worker, newest first.
select * from windlass.workers order by started_at desc, id;
