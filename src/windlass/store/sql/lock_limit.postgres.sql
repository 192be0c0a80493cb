-- Where a limit's rate stands; nobody else counts under it before this transaction ends. No row: somebody does now.
select next_at from windlass.limits where name = :name for update skip locked;
