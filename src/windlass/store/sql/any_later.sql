-- Has the time of a scheduled job of this type come, though nobody has promoted it yet?
select 1 from windlass.jobs where state = 'pending' and due = 0 and run_at <= :now and type = :type limit 1;
