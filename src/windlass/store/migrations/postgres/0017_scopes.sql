-- expand, statement by statement
-- A unique name belongs to a caller and a tenant. Code of the release before looks for it by the name alone, and finds
-- it by the same index.
create unique index concurrently if not exists jobs_unique_in_scope on windlass.jobs (unique_name, caller, tenant)
 where unique_name is not null and state in ('pending', 'processing')
   and (unique_until = 'done' or claims = unique_claims);
drop index concurrently if exists windlass.jobs_unique;
-- Keys of tenants, which are found without the tenant's name, too.
create index concurrently if not exists keys_of_tenants on windlass.keys (key, caller) where answered = 1;
