-- What one worker saw of a name in one stretch of time, newest word.
insert into windlass.tallies (name, worker, stretch, began_at, done, failed)
values (:name, :worker, :stretch, :began_at, :done, :failed)
on conflict (name, worker, stretch) do update set done = excluded.done, failed = excluded.failed;
