-- A job need not wait for this one any more.
delete from windlass.dependencies where parent_id = :parent_id and child_id = :child_id;
