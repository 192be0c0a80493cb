-- A release of the application is counted apart from now on, unless it is already.
insert into windlass.releases (version, first_at) values (:version, :now) on conflict (version) do nothing;
