-- Take it upon oneself to tell somebody of an alert: only one who asks may.
update windlass.alerts set told = :told where name = :name and labels = :labels and told <> :told;
