-- What happened in steps that nobody keeps any longer; totals stay.
delete from windlass.history
 where (step = 'minute' and at < :minutes) or (step = 'hour' and at < :hours) or (step = 'day' and at < :days);
