-- What happened in steps that nobody keeps any longer; totals stay.
delete from windlass.history where step = :step and at < :before;
