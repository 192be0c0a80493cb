-- expand
-- Since when a schedule of the code does not fire because no live worker has its function; null: it fires.
alter table windlass.schedules add column orphaned_at integer;

-- Whether the store's clock goes on steadily: since when, and when that was last seen, by which machine. One row.
create table windlass.clock_watch (
    id integer primary key check (id = 1),
    since integer not null,
    seen_at integer not null,
    boot text not null,
    uptime integer not null
) strict;
