-- A release is counted apart no longer.
delete from windlass.releases where version = :version;
