-- All jobs of a batch have ended.
update windlass.batches set finished_at = :now where id = :id and finished_at is null;
