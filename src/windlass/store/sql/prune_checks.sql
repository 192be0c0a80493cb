-- Checks that nobody made while there was still a record to look at.
delete from windlass.checks where sampled_at < :ended;
