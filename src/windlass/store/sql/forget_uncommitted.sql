-- Make room for what is counted anew.
delete from windlass.uncommitted;
