-- What came of all checks, by type.
select type, matched, mismatched, unknown, mismatch_at, mismatch_job from windlass.verdicts order by type;
