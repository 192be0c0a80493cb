-- expand
-- The audit log by who and by verb; it only grows, so a filter must not read it whole.
create index windlass.audit_who on windlass.audit (who, seq);
create index windlass.audit_verb on windlass.audit (verb, seq);
