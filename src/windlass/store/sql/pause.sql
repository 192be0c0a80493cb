-- Claim no jobs of a type. Who paused it first stays known.
insert into windlass.pauses (type, who, why, paused_at)
values (:type, :who, :why, :now)
on conflict (type) do nothing;
