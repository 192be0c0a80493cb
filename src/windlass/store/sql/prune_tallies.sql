-- What was seen of breakers long ago, and nobody asked about since.
delete from windlass.tallies where began_at < :lately;
