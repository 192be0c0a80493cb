-- Who has told nothing for so long will not repeat itself.
delete from windlass.flushes where told_at < :told;
