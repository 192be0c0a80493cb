-- When a key was last of use; told now and then.
update windlass.api_keys set used_at = :at where id = :id and (used_at is null or used_at < :at);
