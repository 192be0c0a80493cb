-- expand
-- What a running job says that it is doing.
alter table windlass.progress add column message text;
