"""How are workers started, watched and stopped?"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from typing import Any

import click

from windlass.cli.actions import commands
from windlass.cli.commands import group, option, options, span
from windlass.cli.fleet import Handover, supervise_here, take_adopted
from windlass.cli.process import leave, signals, work_here
from windlass.cli.screen import Cell, Row, age, as_typed, say
from windlass.cli.session import answer, end, keep_log, session, table
from windlass.ops import WorkerHealth
from windlass.ops.document import worker_document
from windlass.size import size_text
from windlass.worker.health import parse_address
from windlass.worker.supervisor import take_up
from windlass.worker.worker import Remaining

# What a started worker takes.
worker_options = options(
    option("--concurrency N", "So many jobs at once, of all kinds together.", type=int),
    option("--types A,B", "Serve only these types; patterns such as email.* are fine."),
    option(
        "--shell/--no-shell",
        "Run all shell jobs, or none.  [those of this machine, if the store is a file without API keys]",
        default=None,
    ),
    option("--hang-limit DURATION|off", "Kill a worker process that does not answer for so long.  [15s]"),
    option("--log-json", "Log in JSON, a line per event."),
    option("--verbose -v", "Log every job that is completed as well."),
)


@group("""
    windlass worker start myapp:queue
    windlass worker health
    windlass worker stop
""")
def worker() -> None:
    """Workers: the processes that run jobs."""


@worker.subcommand("""
    windlass worker start myapp:queue
    windlass worker start myapp:queue --concurrency 20 --types 'email.*,report'
    windlass worker start myapp:queue --count 4 --probe 8081
    windlass worker start myapp:queue --pool 'email=send_*:5' --pool 'reports=report.*:2'
    windlass worker start myapp:queue --watch           while developing
    windlass worker start myapp:queue --until-empty
    windlass worker start --shell                       shell jobs only
""")
@click.argument("app", required=False, metavar="[APP]")
@worker_options
@option("--count N", "So many worker processes, kept running.", type=click.IntRange(1, 1000), default=1)
@option("--pool NAME=TYPES:SLOTS", "Slots of their own for some types; may be repeated.", multiple=True)
@option("--memory SIZE", "What jobs with a memory limit may take together, such as 8GB.")
@option("--probe [HOST:]PORT", "Answer by HTTP whether all is well: 200 or 503.")
@option("--watch", "Restart when a file of the application changes.")
@option("--until-empty", "Exit when nothing runs and nothing can be claimed.")
def start(
    app: str | None,
    *,
    count: int,
    pool: tuple[str, ...],
    memory: str | None,
    probe: str | None,
    watch: bool,
    until_empty: bool,
    log_json: bool,
    verbose: bool,
    **given: Any,
) -> None:
    """Run jobs until stopped. APP is the application's queue as module:queue.

    Ctrl-C, SIGTERM or SIGHUP: nothing more is claimed, what runs may finish for 25 seconds, the rest is given
    back. A second Ctrl-C or SIGTERM: at once. With --until-empty, jobs that are scheduled or wait for a retry
    are counted on the last line, not waited for; a signal ends it with 130, 143 or 129, a drain with 1.
    """
    supervised, adopted = take_up(), take_adopted()
    once = until_empty and supervised is None
    signals.obey(supervised=supervised is not None, adopts=adopted is not None, ends_by_itself=once)
    here = keep_log(log_json=log_json, verbose=verbose)
    here.flags |= worker_flags(app, given) | {"worker.pools": pool or None, "worker.memory": memory}
    address = None if probe is None else parse_address(probe)
    remaining, code = None, 0
    if adopted is not None or (supervised is None and (count > 1 or watch)):
        code = supervise_here(here, count, address=address, watch=watch, adopted=adopted)
        code = code or (signals.code if once else 0)
    else:
        remaining = work_here(
            here,
            here.queue,
            until_empty=until_empty,
            address=None if supervised else address,
            supervised=supervised,
            succession=None if supervised else partial(Handover, here, queue=here.queue),
        )
    if remaining is not None:
        answer(remaining, _lines(remaining))
        code = {"empty": 0, "drained": 1, "signal": signals.code}[remaining.ended] if once else 0
    leave(here, code)
    end(code)


@worker.subcommand("""
    windlass worker stop
    windlass worker stop --within 5m
""")
@option("--within DURATION", "Wait so long.", type=span, default="45s", show_default=True)
def stop(within: timedelta) -> None:
    """Stop the workers of this store that run on this machine, gently, and wait until they are gone."""
    result = session().ops().stop_local(within=within)
    lines = [f"{name}: stopped" for name in result.stopped]
    none = "no worker of this store runs on this machine"
    answer(result, lines or (() if result.left else none))
    for name in result.left:
        say(f"{name} still runs; it goes on stopping")
    end(int(bool(result.left)))


@worker.subcommand("""
    windlass worker health
    windlass worker health --all
    windlass worker health --json
""")
@option("--all", "Those that stopped as well.", name="everything")
def health(everything: bool) -> None:
    """Every worker and its last heartbeat; exit 0 if at least one is alive."""
    found = [each for each in session().ops().workers() if everything or each.info.state != "stopped"]
    head = ("WORKER", "STATE", "HEARTBEAT", "BUSY", "MEMORY", "DONE", "FAILED", "LATE", "TYPES")
    document = {"workers": [worker_document(each) for each in found]}
    answer(document, table(head, map(_row, found), "no worker is running"))
    end(int(not any(each.alive for each in found)))


for _command in commands("workers/"):
    worker.add_command(_command)
COMMANDS = (worker,)


def worker_flags(app: str | None, given: Mapping[str, object]) -> dict[str, object]:
    """The flags that were given, by the names of their options."""
    flags = {"app": app, **{f"worker.{name}": value for name, value in given.items()}}
    return {name: value for name, value in flags.items() if value is not None}


def _row(each: WorkerHealth) -> Row:
    info = each.info
    ended = info.state in ("stopped", "dead")
    state = info.state if ended or each.alive else "silent"
    colour = "green" if each.alive else "bright_black" if state == "stopped" else "red"
    busy = f"{info.busy}/{info.slots}" + (f" (+{info.held} held)" if info.held else "")
    memory = None if info.resident_bytes is None else size_text(info.resident_bytes)
    seen, types = f"{age(each.silent_for)} ago", ", ".join(info.types)
    return [info.id, Cell(state, colour), seen, busy, memory, info.done, info.failed, info.late, types]


def _lines(remaining: Remaining) -> str:
    now = {"due": remaining.due, "processing": remaining.processing}
    why = {"signal": "stopped by a signal", "drained": "stopped by an operator"}.get(remaining.ended)
    if why is None:
        # Others may have enqueued or claimed some after the last look.
        why = "ended" if any(now.values()) else "nothing left to run"
        now = {what: number for what, number in now.items() if number}
    others = {
        "waiting for other jobs": remaining.waiting,
        "paused": remaining.paused,
        "unreadable by this release (windlass list --state unreadable)": remaining.unreadable,
    }
    more = "".join(f", {number} {what}" for what, number in others.items() if number)
    busy = "".join(f"{number} {what}, " for what, number in now.items())
    return as_typed(f"{why}; {busy}{remaining.scheduled} scheduled, {remaining.retrying} retrying{more}")
