-- Is anything in this store that a move would mix with its own?
select exists (select from windlass.jobs) or exists (select from windlass.archive)
    or exists (select from windlass.keys) or exists (select from windlass.settings)
    or exists (select from windlass.pauses) or exists (select from windlass.breakers)
    or exists (select from windlass.limits)
    or exists (select from windlass.batches) or exists (select from windlass.dependencies)
    or exists (select from windlass.once) or exists (select from windlass.progress)
    or exists (select from windlass.schedules) or exists (select from windlass.fires) as anything;
