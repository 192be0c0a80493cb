"""Which events do we log? The one list of them; docs/observability.md shows it.

An event's name is the message of its record; what is known of it stands in the record's fields. Those about
one job carry `job`, `type`, `attempt` and `worker`, and `tenant` and `trace` where it has them; none carries
a payload.
"""

from __future__ import annotations

from typing import NamedTuple


class Event(NamedTuple):
    """One kind of event, and what it means to whoever reads the log."""

    name: str
    level: str
    means: str


EVENTS = (
    # Jobs.
    Event(
        "job.started",
        "info or debug",
        "An attempt begins. Debug where jobs of the type are known to take less than a second",
    ),
    Event("job.completed", "debug", "An attempt ended well, after so many `seconds`"),
    Event(
        "job.settled",
        "info or warning",
        "An attempt ended otherwise: `outcome`, `reason`, `error`; a warning if the job is dead",
    ),
    Event(
        "job.left",
        "info",
        "Only another release of the application can read the payload of so many `jobs`: they wait for a "
        "worker of it. At most one line a minute for each type",
    ),
    Event(
        "job.reaped", "warning", "The worker of a job is gone, or its lease ran out: the job was taken back"
    ),
    Event(
        "job.failed_after_completion",
        "warning",
        "A handler raised after its own transaction had completed the job",
    ),
    Event(
        "job.result_not_kept",
        "warning",
        "A job completed, but what its handler returned could not be kept: `why`",
    ),
    Event("rules.failed", "error", "A type's `rules` function raised; the defaults hold for `exception`"),
    Event("rules.wrong", "error", "A type's `rules` function `returned` something else than a rule or None"),
    Event("rules.not_found", "warning", "A child process cannot import a type's `rules` function"),
    Event(
        "lease.lost",
        "warning",
        "A result came too late: another worker had the job, or the store's file was replaced (`note`)",
    ),
    Event(
        "settle.failed",
        "error",
        "An outcome could not be written; its lease runs out, and the job runs again",
    ),
    Event(
        "check.mismatched", "warning", "A completed job had not done what it should, says its type's check"
    ),
    Event("check.failed", "warning", "A check raised, and is made again"),
    Event("check.hung", "warning", "A check does not end; until it does, its type is not checked here"),
    Event("check.given_up", "warning", "A check was tried often enough, or the job's record is gone"),
    # Workers.
    Event("worker.started", "info", "A worker is in the fleet and claims its `types`"),
    Event("worker.no_shell", "info", "The worker runs no shell jobs, and why; `--shell` runs them"),
    Event("worker.draining", "info", "A worker claims no more and finishes what runs"),
    Event(
        "worker.interrupting",
        "warning",
        "The time for a shutdown is over: these `jobs` are stopped and given back",
    ),
    Event("worker.unsettled", "warning", "A worker stops while so many `outcomes` are not written"),
    Event("worker.uncounted", "warning", "A worker stops and could not tell its last second's counts"),
    Event("worker.unpruned", "warning", "A worker could not delete records past their retention in its end"),
    Event("worker.left_silently", "warning", "A worker could not say that it stops; others will notice"),
    Event("worker.stopped", "info", "A worker has stopped"),
    Event("worker.stop_hook_failed", "error", "A hook of the application raised while the worker stopped"),
    Event(
        "worker.dead", "warning", "A worker was declared dead: its beat stood still, or its process is gone"
    ),
    Event(
        "worker.silent",
        "warning",
        "A worker process has not answered for 5 s: `stacks` shows where, `jobs` which may be the cause",
    ),
    Event("worker.answers", "warning", "It answers again"),
    Event(
        "worker.hung",
        "error",
        "A worker process has not answered for its `--hang-limit`; `killed` says whether it was ended",
    ),
    Event("worker.out_of_memory", "warning", "The kernel killed a worker process for lack of memory"),
    Event(
        "worker.renamed",
        "warning",
        "Declared dead by the fleet (`why`); rejoined under a new id",
    ),
    Event(
        "worker.leaks",
        "error",
        "Threads that do not end, or a blocked event loop (`why`): a new process takes over",
    ),
    Event("worker.recovered", "info", "What made a new process necessary has ended by itself"),
    Event("worker.replacing", "info", "A successor is started for a worker, for the reason in `why`"),
    Event("worker.succeeded", "info", "The successor is there: the old worker finishes what runs and leaves"),
    Event("worker.not_replaced", "error", "A worker could not restart itself; the successor goes on"),
    Event("worker.waits_for_store", "warning", "The store is not there yet"),
    Event("worker.store_is_there", "info", "The store is there, after so many `tries`"),
    Event(
        "type.upgrade_missing",
        "warning",
        "Payloads of an older version may wait, and the code has no step for them",
    ),
    Event("claim.released_unknown", "warning", "A claim's answer was lost; its jobs were given back"),
    Event("child.started", "info", 'A process for jobs with `executor="process"` is there'),
    Event("guard.lost", "warning", "The process that would end children after a kill is gone"),
    Event("probe.failed", "error", "An answer at the health address could not be made"),
    Event("thread.failed", "error", "A thread of ours raised"),
    Event("thread.refused", "warning", "The system gives no more threads"),
    Event("loop.blocked", "warning", "A handler blocks the event loop; `stack` shows where"),
    Event("loop.broken", "error", "The event loop raised"),
    Event("loop.left_behind", "warning", "A task of a handler was still there at the end"),
    Event(
        "loop.tick_failed",
        "warning",
        "One of our own loops failed, and goes on in `again_in` seconds; told once a minute while it lasts",
    ),
    Event("loop.recovered", "warning", "A loop that had failed more than once in a row works again"),
    # Fleets.
    Event("supervisor.started", "info", "So many `workers` are kept running"),
    Event("worker.restarting", "info or warning", "A worker has ended (`ending`), and is started anew"),
    Event("worker.not_started", "warning", "The machine has no room for a worker just now; tried again"),
    Event("worker.ended", "info", "A worker has ended because it was asked to"),
    Event("supervisor.reloads", "info", "A file has `changed`: workers are started anew"),
    Event(
        "supervisor.waits_for_change", "warning", "Workers cannot begin; the next changed file may mend it"
    ),
    Event("supervisor.kills", "error", "Workers did not end in time"),
    Event("supervisor.gives_up", "error", "Workers die as soon as they begin"),
    Event("supervisor.not_drained", "warning", "A worker could not be told to drain; it is told again"),
    Event(
        "supervisor.not_handed_back", "warning", "The jobs of a dead worker could not be handed back at once"
    ),
    # Upkeep.
    Event(
        "store.replaced",
        "error",
        "A SQLite file was removed, renamed or replaced while it was open; nothing is accepted into it",
    ),
    Event("store.reopened", "warning", "The file that is at the path now is used from here on"),
    Event(
        "store.log_set_aside",
        "warning",
        "A write-ahead log of the file that was at the path before is kept as `kept`",
    ),
    Event("operation.failed", "error", "An action on many jobs has ended because of a bug; the others go on"),
    Event("store.pruned", "info", "So many records were past their retention"),
    Event(
        "store.clock_jumped",
        "warning",
        "The store's clock was set: dead letters are kept for an hour more",
    ),
    Event(
        "store.checkpoint_failed",
        "warning",
        "SQLite's log could not be written back; it grows until the next try",
    ),
    Event("schedule.fired", "info", "Schedules have made so many `jobs`"),
    Event(
        "schedule.not_declared",
        "warning",
        "An operator's schedule has the name of one that the code declares",
    ),
    Event("scheduler.started", "info", "A scheduler of its own fires schedules"),
    Event("scheduler.stopped", "info", "It has stopped"),
    Event("breaker.opened", "warning", "A dependency seems down: jobs of that type or key are held back"),
    Event("breaker.closed", "warning", "They run again"),
    Event("queue.deep", "warning", "More jobs wait than `soft_depth`; more are taken up to `hard_depth`"),
    Event("queue.counts", "info", "`windlass up`: where jobs stand, when that has changed"),
    Event(
        "wakeup.deaf",
        "warning",
        "This worker is not notified of new jobs; it finds them by looking each second",
    ),
    Event("wakeup.hears_again", "warning", "It is notified again"),
    # Servers.
    Event("up.server", "info", "`windlass up`: where the server is"),
    Event("server.store_failed", "warning", "A request failed because of the store"),
    Event("server.store_away", "warning", "The store cannot be reached; requests are answered with 503"),
    Event("server.store_back", "info", "The store can be reached again"),
    Event(
        "server.denied", "warning", "Requests were refused (401, 403, 421), by address and key, with a count"
    ),
    Event("server.exposed", "warning", "Other machines reach the server without TLS, or without a key"),
    Event("server.look_failed", "warning", "The server could not look at the store; it tries again"),
    Event("server.failed", "error", "A mistake of ours; the caller got a 500"),
    Event("server.ended", "error", "The server ended by a mistake of ours"),
    Event("alert.fires", "warning", "The condition of an `alert` has held for long enough"),
    Event("alert.over", "warning", "It holds no more"),
    Event("alert.not_told", "warning", "The webhook of an alert did not answer"),
    Event("log.dropped", "warning", "Nobody took so many `lines` of this log"),
)

# Logged by the demo jobs alone.
OF_THE_DEMO = frozenset({"video.converted"})
