-- Undo an insert of this same transaction. No fence: nobody else has seen the row.
delete from windlass.jobs where id = :id and claims = 0;
