-- Jobs whose time came before that moment, and which still do not stand in the claim index: nobody can see them there.
select type, count(*) as count, min(run_at) as since
  from (select type, run_at
          from windlass.jobs
         where state = 'pending' and due = 0 and run_at <= :before
         order by run_at
         limit :limit) as late
 group by type;
