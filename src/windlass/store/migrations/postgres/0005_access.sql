-- expand
-- Who may speak with a server. The secret itself is known to its owner alone.
create table windlass.api_keys (
    id text collate "C" primary key,
    -- The service: several keys of one name are valid at a time, so that one can follow another.
    name text collate "C" not null,
    digest text not null,
    roles text not null,
    types text not null,
    tenant text,
    -- Jobs per second, in digits.
    rate text,
    created_at bigint not null,
    expires_at bigint,
    revoked_at bigint,
    used_at bigint
);

-- What people did, oldest first; nothing of ours ever changes or removes a row.
create table windlass.audit (
    seq bigint generated always as identity primary key,
    at bigint not null,
    who text collate "C" not null,
    verb text collate "C" not null,
    kind text collate "C" not null,
    target text collate "C" not null,
    before text,
    after text,
    why text not null default ''
);

create index audit_target on windlass.audit (target, seq);
create index audit_who on windlass.audit (who, seq);
create index audit_verb on windlass.audit (verb, seq);
