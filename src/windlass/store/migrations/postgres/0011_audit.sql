-- expand, statement by statement
-- The audit log by who and by verb; it only grows, so a filter must not read it whole.
create index concurrently if not exists audit_who on windlass.audit (who, seq);
create index concurrently if not exists audit_verb on windlass.audit (verb, seq);
