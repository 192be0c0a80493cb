-- A schema of our own; one that a careful administrator has made for us will do.
create schema if not exists windlass;
