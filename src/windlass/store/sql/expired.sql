-- Leases past their end; the reaper decides what becomes of them.
select * from windlass.jobs where state = 'processing' and lease_until < :now order by lease_until, seq limit :limit;
