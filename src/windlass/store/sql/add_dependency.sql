-- A job waits for another.
insert into windlass.dependencies (parent_id, child_id, policy, run_at)
values (:parent_id, :child_id, :policy, :run_at)
on conflict (parent_id, child_id) do nothing;
