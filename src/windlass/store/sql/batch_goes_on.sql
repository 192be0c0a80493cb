-- Is any job of the batch still to run, or running?
select 1 from windlass.jobs where batch = :id and state in ('pending', 'processing') limit 1;
