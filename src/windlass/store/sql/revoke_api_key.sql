-- End an API key, now or later; one that ended before stays as it is.
update windlass.api_keys set revoked_at = :at
 where id = :id and (revoked_at is null or revoked_at > :at);
