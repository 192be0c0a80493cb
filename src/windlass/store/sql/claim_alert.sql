-- Take it upon oneself to tell somebody of an alert: a row of its own says that one is about to. Who is killed before the
-- word is out leaves it behind, and it is forgotten after a while.
insert into windlass.alerts (name, labels, since, seen_at, value)
select :telling, :of, :now, :now, 0
  from windlass.alerts
 where name = :name and labels = :labels and told <> :told
on conflict (name, labels) do nothing;
