-- The releases that are counted apart, the newest first.
select version, first_at from windlass.releases order by first_at desc, version desc;
