-- Nobody else takes this name meanwhile: there is one writer at a time.
select :name as name;
