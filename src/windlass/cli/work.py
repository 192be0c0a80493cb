"""How are workers started, watched and stopped?"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from typing import Any

import click

from windlass.cli.actions import commands
from windlass.cli.commands import group, options, span
from windlass.cli.fleet import Handover, supervise_here, take_adopted
from windlass.cli.process import leave, signals, work_here
from windlass.cli.screen import Cell, Row, age, as_typed, one_line, size
from windlass.cli.session import answer, end, session, table
from windlass.ops import WorkerHealth
from windlass.ops.document import worker_document
from windlass.worker.health import parse_address
from windlass.worker.shutdown import Remaining
from windlass.worker.supervisor import take_up

# What a started worker takes.
worker_options = options(
    click.option("--concurrency", type=int, metavar="N", help="So many jobs at once, of all kinds together."),
    click.option("--types", metavar="A,B", help="Serve only these types; patterns such as email.* are fine."),
    click.option(
        "--shell/--no-shell",
        default=None,
        help="Run all shell jobs, or none.  [those of this machine, if the store is a file without API keys]",
    ),
    click.option(
        "--hang-limit",
        metavar="DURATION|off",
        help="Kill a worker process that does not answer for so long.  [15s]",
    ),
    click.option("--log-json", is_flag=True, help="Log in JSON, a line per event."),
    click.option("--verbose", "-v", is_flag=True, help="Log every job that is completed as well."),
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
@click.option(
    "--count",
    type=click.IntRange(1, 1000),
    default=1,
    metavar="N",
    help="So many worker processes, kept running.",
)
@click.option(
    "--pool",
    multiple=True,
    metavar="NAME=TYPES:SLOTS",
    help="Slots of their own for some types; may be repeated.",
)
@click.option(
    "--memory", metavar="SIZE", help="What jobs with a memory limit may take together, such as 8GB."
)
@click.option("--probe", metavar="[HOST:]PORT", help="Answer by HTTP whether all is well: 200 or 503.")
@click.option("--watch", is_flag=True, help="Start anew when a file of the application changes.")
@click.option("--until-empty", is_flag=True, help="Exit when nothing runs and nothing can be claimed.")
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
    here = session()
    here.flags |= worker_flags(app, given) | {"worker.pools": pool or None, "worker.memory": memory}
    address = None if probe is None else parse_address(probe)
    remaining, code = None, 0
    if adopted is not None or (supervised is None and (count > 1 or watch)):
        code = supervise_here(
            here, count, log_json=log_json, verbose=verbose, address=address, watch=watch, adopted=adopted
        )
        code = code or (signals.code if once else 0)
    else:
        remaining = work_here(
            here,
            here.queue,
            log_json=log_json,
            verbose=verbose,
            until_empty=until_empty,
            address=None if supervised else address,
            supervised=supervised,
            succession=None if supervised else partial(Handover, here, queue=here.queue),
        )
    if remaining is not None:
        answer(remaining, _told(remaining))
        code = {"empty": 0, "drained": 1, "signal": signals.code}[remaining.ended] if once else 0
    leave(here, code)
    end(code)


@worker.subcommand("""
    windlass worker stop
    windlass worker stop --within 5m
""")
@click.option(
    "--within", type=span, default="45s", show_default=True, metavar="DURATION", help="Wait so long."
)
def stop(within: timedelta) -> None:
    """Stop the workers of this store that run on this machine, gently, and wait until they are gone."""
    result = session().ops().stop_local(within=within)
    told = [f"{name}: stopped" for name in result.stopped]
    none = "no worker of this store runs on this machine"
    answer(result, told or (() if result.left else none))
    for name in result.left:
        click.echo(f"windlass: {name} still runs; it goes on stopping", err=True)
    end(int(bool(result.left)))


@worker.subcommand("""
    windlass worker health
    windlass worker health --all
    windlass worker health --json
""")
@click.option("--all", "everything", is_flag=True, help="Those that stopped as well.")
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
    return [
        info.id,
        Cell(state, colour),
        f"{age(each.silent_for)} ago",
        f"{info.busy}/{info.slots}" + (f" (+{info.held} held)" if info.held else ""),
        "" if info.resident_bytes is None else size(info.resident_bytes),
        info.done,
        info.failed,
        info.late,
        one_line(", ".join(info.types)),
    ]


def _told(remaining: Remaining) -> str:
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
