-- So far rows have been copied. Only from where this process believes to be: two must not copy the same rows.
update windlass.moves set copied = :copied where id = :id and state = 'filling' and copied = :before;
