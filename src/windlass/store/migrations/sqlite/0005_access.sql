-- expand
-- Who may speak with a server. The secret itself is known to its owner alone.
create table windlass.api_keys (
    id text primary key,
    -- The service: several keys of one name are valid at a time, so that one can follow another.
    name text not null,
    digest text not null,
    roles text not null,
    types text not null,
    tenant text,
    -- Jobs per second, in digits.
    rate text,
    created_at integer not null,
    expires_at integer,
    revoked_at integer,
    used_at integer
) strict, without rowid;

-- What people did, oldest first; nothing of ours ever changes or removes a row.
create table windlass.audit (
    seq integer primary key autoincrement,
    at integer not null,
    who text not null,
    verb text not null,
    kind text not null,
    target text not null,
    before text,
    after text,
    why text not null default ''
) strict;

create index windlass.audit_target on windlass.audit (target, seq);
create index windlass.audit_who on windlass.audit (who, seq);
create index windlass.audit_verb on windlass.audit (verb, seq);
