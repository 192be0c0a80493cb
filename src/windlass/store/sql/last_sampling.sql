-- The last sample.
select sampled_at, took, settled_seq, counted_seq, horizon from windlass.samplings where id = 1;
