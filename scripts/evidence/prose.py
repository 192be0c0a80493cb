"""What the page says besides its figures."""

HEADER = """# Evidence

What was done to Windlass, and what came of it. `make evidence` writes this page from the files in
`docs/evidence`, which the runs wrote themselves. No figure is typed by hand, each links to its data,
and each section has the command that repeats it.

A run shows that the promises of [guarantees](guarantees.md) held in that run, on that machine, at that
commit. It does not show that they hold always: [what is not shown](#what-is-not-shown) is at the end.
"""

LOST = """\
*Lost*: accepted, and not in the store. *Doubled*: the handler returned more than once, because the
worker was killed after the work and before its record, or had lost its lease; [at least
once](guarantees.md) allows it.
"""

LOAD = """\
*Load average*: of the fifteen minutes before the run ended, by this run and by everything else on the
machine. Above the number of cores processes wait for one; at ten times that, whatever is timed here is
mostly that wait.
"""

WORKERS = """\
Workers run short and long jobs on threads, on the loop and as commands, while producers enqueue. Every
second a worker that runs something is killed with `kill -9`. On PostgreSQL the primary is also
restarted twice with an immediate shutdown, then killed, and its synchronous standby takes over.
Afterwards the recorded history of every call and every execution is judged (`tests/history`). `--slack`
multiplies the times within which things must happen, for a machine that is busy with other programs.
"""

RECOVERY = """**Recovery**: seconds from the kill to the next start of a job that it cut off.
"""

RECOVERY_NOTE = """\
Without a heartbeat for 10 s a worker is dead; on the same machine its missing process shows it sooner.
What is left is the poll of the reaper, the pause before a retry, and the wait for a free slot: a worker is
killed every second, and the next one must start before it can run anything. On PostgreSQL the times in
which the database itself was away are in it, too.
"""

COMMITS = """\
A handler writes a row in `ctx.transaction()`, and its worker is killed in the milliseconds around the
commit, again and again. The row and the job's completion must both be there, or neither.

Most of these jobs are *doubled*: the handler had returned when its worker was killed, and it ran once
more. Its write did not: what the killed attempt wrote was rolled back, and each job has one row.
"""

SERVERS = """\
Clients post jobs and try again as the SDK does, while the HTTP servers are killed at random: one server
on SQLite, two on one PostgreSQL. Then PostgreSQL is stopped for 15 seconds under load. No worker runs
here, so every job stays pending: what is judged is that an accepted job is there, once.
"""

AVAILABILITY = """PERF-12 asks for at least 99.95 % of client calls, with the SDK's own retries.
"""

POWER = """\
Every write and sync of a real producer and worker on SQLite is recorded. From the recording the disk is
built as it could be after a cut at any point, with unsynced writes kept, dropped or torn, and opened
again: every acknowledged job must be there. To show that the check can fail, some syncs are made to do
nothing: those faults must be found.
"""

MODELS = """\
TLA+ models of the protocols, checked by TLC over all states of a small instance; `proofs/README.md`
says what is modelled and which code each action is. Each model has twins with one rule left out. TLC
must refute them: a model that cannot fail proves nothing.
"""

SIMULATOR = """\
The real parts of workers and the real store, under one seeded scheduler. It decides which process acts
next, which answer is lost, what is killed or frozen, and when time moves. Every promise is checked
after each step. A failing seed repeats exactly, and is shrunk to a short story.
"""

MUTANTS = """\
**Planted bugs**: each is put into a copy of the source by itself, and the simulator has ten minutes to
find it.
"""

SOAK = """\
Mixed load by real processes: 20 services with API keys post 500 jobs a second of 30 types, singly, with
batches of 100 beside them and bursts of 5,000 a second by the Python API. An application writes its own
row and enqueues 4 jobs in one transaction. Meanwhile workers and a server are killed with `kill -9`,
that server and PostgreSQL restart, and retention deletes records of earlier days. *Calm* calls are
those outside bursts and restarts and the ten seconds after them; what a call waits counts from when it
was due. At the end the history of every job is judged.

Growth is judged by the medians of both halves. The application opens a connection for each of its threads,
of which there are 40 at most: a run of a few minutes ends before all are open, and shows that as growth.

The load takes most of two cores, which the clients, the servers, the workers and the database share. In the
hour on PostgreSQL, we ran the simulator on the same machine from minute 15 to minute 34. There was no room
for it: calls waited for seconds until it ended, as the plot shows, and nothing was lost.
"""

SHARED = """\
**Other programs took {share:.0%} of the machine's two cores meanwhile.** The rates and latencies are
those of a machine that is shared with them, not of Windlass alone; an aim that was not met is shown as
such.
"""

OTHERS = """\
`siege` attacks a real server (slow readers, floods, huge requests and more) beside good posts, and lets its
store go away. `bad-day` plays the ordinary troubles of production: rolling deploys, workers that hang or are
stopped, lost files, stuck shutdowns. Both play on both stores, with real processes.
"""

NOT_SHOWN = """## What is not shown

- **Other machines.** All runs are from one small machine that other programs used at the same time. The
  rates and latencies on this page are not a benchmark; `bench/report.md` is.
- **A machine that is overloaded.** With ten processes waiting for each core, `make kill-run` without
  `--slack` breaks its promise on time: jobs wait for workers that cannot start. Such runs lost nothing
  either, and are not kept here.
- **Disks that lie.** Power cuts are made from a recording of what was written and synced. A disk that
  acknowledges a sync and does not keep it loses data under any database.
- **Power cuts on PostgreSQL.** It is restarted with an immediate shutdown and killed, which tests its
  recovery after a crash, not its files after a cut; those are PostgreSQL's own promise.
- **Networks between hosts.** `make two-hosts` and the tests of faults have them; no result is kept
  here.
- **All states.** TLC searches small instances: two or three workers, a few jobs. That the code does
  what the model says is the work of the tests and of the table in `proofs/README.md`.
- **Exactly once.** A worker that is killed after its handler returned, and before that is recorded,
  leaves a job that runs again. Those are the *doubled* ones. `ctx.transaction()` avoids it for writes
  to the queue's own database.
- **Days and weeks.** A soak has lasted as long as its heading says: what grows by a megabyte a day is
  not seen in it. On PostgreSQL the archive of a day is dropped whole when the day and its retention
  are over, so in a day it only grows.
"""
