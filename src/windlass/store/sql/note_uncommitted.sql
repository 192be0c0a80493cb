-- Jobs that will be counted again.
insert into windlass.uncommitted (type, count) values (:type, :count);
