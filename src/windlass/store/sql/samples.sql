-- How many live jobs stood where at the last sample, by type, and of some tenants.
select type, priority, view, tenant, count, since from windlass.samples order by type, priority, view, tenant;
