-- name: note_action
-- One line of the audit log; there is no statement that changes or removes one.
insert into windlass.audit (at, who, verb, kind, target, before, after, why)
values (:now, :who, :verb, :kind, :target, :before, :after, :why);

-- name: audit
-- Lines of the audit log before a place, to be ordered and limited.
-- What is asked for stands where the mark is: each by an index of its own.
select *
  from windlass.audit
 where seq < :before /*where*/

-- name: next_actor
-- The first name in the audit log after one, below another: so names are found without reading all of their lines.
select min(who) as who from windlass.audit where who > :after and who < :until;

-- name: add_api_key
-- A new API key; the digest of its secret, never the secret.
insert into windlass.api_keys (id, name, digest, roles, types, tenant, rate, created_at, expires_at)
values (:id, :name, :digest, :roles, :types, :tenant, :rate, :now, :expires_at)
on conflict (id) do nothing;

-- name: api_keys
-- Every API key, the newest first, ended ones too.
select * from windlass.api_keys order by created_at desc, id;

-- name: revoke_api_key
-- End an API key, now or later; one that ended before stays as it is.
update windlass.api_keys set revoked_at = :at
 where id = :id and (revoked_at is null or revoked_at > :at);

-- name: api_key_used
-- When a key was last of use; told now and then.
update windlass.api_keys set used_at = :at where id = :id and (used_at is null or used_at < :at);
