-- Every API key, the newest first, ended ones too.
select * from windlass.api_keys order by created_at desc, id;
