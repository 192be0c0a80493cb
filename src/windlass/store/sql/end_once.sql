-- A side effect is done. No fence: it happened, whoever holds the job by now.
update windlass.once set done = 1, noted_at = :now where job_id = :id and key = :key;
