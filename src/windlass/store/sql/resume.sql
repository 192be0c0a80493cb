-- Claim jobs of a type again.
delete from windlass.pauses where type = :type;
