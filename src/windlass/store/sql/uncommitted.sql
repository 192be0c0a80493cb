-- Jobs that were counted as enqueued beyond the number up to which that is certain.
select type, count from windlass.uncommitted;
