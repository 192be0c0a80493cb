-- What was ever counted under a name, of whatever type; what was counted by minute, hour and day goes in its time.
delete from windlass.history where step = 'ever' and at = 0 and name = :name;
