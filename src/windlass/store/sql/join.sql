-- A worker process enters its row; one of its name is its own, entered before the answer was lost.
insert into windlass.workers (
    id, state, beat, beat_at, started_at, host, boot, pid_space, pid, pid_started, version, app, types, slots,
    versions, pools
) values (
    :id, 'running', 0, :now, :now, :host, :boot, :pid_space, :pid, :pid_started, :version, :app, :types, :slots,
    :versions, :pools
) on conflict (id) do nothing;
