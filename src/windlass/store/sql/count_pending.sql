-- How many jobs of each type wait: the due ones, and those whose time has not come. From the indexes alone.
select type, count(*) as count from windlass.jobs where due = 1 group by type
union all
select type, count(*) as count from windlass.jobs where state = 'pending' and due = 0 group by type;
