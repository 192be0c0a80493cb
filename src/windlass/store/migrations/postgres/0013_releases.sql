-- expand
-- What each process that counts has told last: a flush that is repeated, since its answer was lost, counts once.
create table windlass.flushes (
    teller text collate "C" primary key,
    number bigint not null,
    told_at bigint not null
) with (fillfactor = 50);

-- The releases of the application whose attempts are counted apart, and when each was first heard of.
create table windlass.releases (
    version text collate "C" primary key,
    first_at bigint not null
);

-- A sample also tells where the jobs of some tenants stand, if operators ask for it; such a row has no type. Made anew,
-- and so empty until the next sample, a few seconds later.
drop table windlass.samples;
create table windlass.samples (
    type text collate "C" not null,
    priority smallint not null,
    view text collate "C" not null,
    tenant text collate "C" not null default '',
    count bigint not null,
    since bigint,
    primary key (type, priority, view, tenant)
);
update windlass.samplings set sampled_at = 0;
