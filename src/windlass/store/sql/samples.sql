-- How many live jobs stood where at the last sample.
select type, priority, view, count, since from windlass.samples order by type, priority, view;
