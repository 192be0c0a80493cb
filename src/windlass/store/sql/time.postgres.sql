-- What time is it here?
select windlass.now() as now;
