-- What came of one check.
insert into windlass.verdicts (type, matched, mismatched, unknown, mismatch_at, mismatch_job)
values (:type, :matched, :mismatched, :unknown, :mismatch_at, :mismatch_job)
on conflict (type) do update
   set matched = windlass.verdicts.matched + excluded.matched,
       mismatched = windlass.verdicts.mismatched + excluded.mismatched,
       unknown = windlass.verdicts.unknown + excluded.unknown,
       mismatch_at = coalesce(excluded.mismatch_at, windlass.verdicts.mismatch_at),
       mismatch_job = coalesce(excluded.mismatch_job, windlass.verdicts.mismatch_job);
