-- Checks that were not made yet, by type, and when the first of them was due.
select type, count(*) as count, min(first_due_at) as since from windlass.checks group by type;
