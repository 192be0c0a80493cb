-- Every lease in a worker's name.
select * from windlass.jobs where state = 'processing' and worker = :worker order by seq;
