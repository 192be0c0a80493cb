-- A new API key; the digest of its secret, never the secret.
insert into windlass.api_keys (id, name, digest, roles, types, tenant, rate, created_at, expires_at)
values (:id, :name, :digest, :roles, :types, :tenant, :rate, :now, :expires_at);
