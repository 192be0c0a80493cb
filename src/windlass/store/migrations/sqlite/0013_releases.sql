-- expand
-- What each process that counts has told last: a flush that is repeated, since its answer was lost, counts once.
create table windlass.flushes (
    teller text primary key,
    number integer not null,
    told_at integer not null
) strict, without rowid;

-- The releases of the application whose attempts are counted apart, and when each was first heard of.
create table windlass.releases (
    version text primary key,
    first_at integer not null
) strict, without rowid;

-- A sample also tells where the jobs of some tenants stand, if operators ask for it; such a row has no type. Made anew,
-- and so empty until the next sample, a few seconds later.
drop table windlass.samples;
create table windlass.samples (
    type text not null,
    priority integer not null,
    view text not null,
    tenant text not null default '',
    count integer not null,
    since integer,
    primary key (type, priority, view, tenant)
) strict, without rowid;
update windlass.samplings set sampled_at = 0;
