-- How many runs were seen under a name?
select cast(sum(done) as bigint) as done, cast(sum(failed) as bigint) as failed from windlass.tallies where name = :name;
