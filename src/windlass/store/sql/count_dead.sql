-- Dead letters by type.
select type, count(*) as count from windlass.jobs where state = 'dead' group by type;
