-- How often has anything been set, paused or switched?
select value from windlass.revisions where name = 'flow';
