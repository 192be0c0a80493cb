-- Make room for a new sample.
delete from windlass.samples;
