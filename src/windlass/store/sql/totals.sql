-- Everything that was ever counted.
select type, name, value from windlass.history where step = 'ever' and at = 0;
