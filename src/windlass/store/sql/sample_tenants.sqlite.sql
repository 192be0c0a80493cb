-- Where the live jobs of the tenants stand that operators name (`tenants` is JSON), those of all others together. Not run
-- unless some are named.
select case when tenant in (select value from json_each(:tenants)) then tenant else :other end as tenant,
       view, cast(sum(count) as bigint) as count, min(since) as since
  from (select tenant, 'due' as view, count(*) as count, min(run_at) as since
          from windlass.jobs where due = 1 group by 1
        union all
        select tenant,
               case when run_at >= :never then 'waiting' when run_at <= :now then 'due'
                    when attempts > 0 then 'retrying' else 'scheduled' end,
               count(*), min(run_at)
          from windlass.jobs where state = 'pending' and due = 0 group by 1, 2
        union all
        select tenant, case when lease_until < :now then 'stuck' else 'processing' end, count(*), min(started_at)
          from windlass.jobs where state = 'processing' group by 1, 2
        union all
        select tenant, 'dead', count(*), min(finished_at)
          from windlass.jobs where state = 'dead' group by 1) as live
 group by 1, 2;
