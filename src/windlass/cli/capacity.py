"""Will it hold: does every type work after a deployment, and how much does a load take?"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import click

from windlass.cli.commands import Command
from windlass.cli.options import rate, span
from windlass.cli.screen import Cell, duration, number, one_line, took
from windlass.cli.session import session
from windlass.errors import Refused, must_be
from windlass.ops.document import encode
from windlass.ops.plan import Load, Plan, measured, plan
from windlass.ops.words import count
from windlass.size import parse_size
from windlass.smoke import Smoked, smoke, with_samples


@click.command(
    "smoke",
    cls=Command,
    examples="""
        windlass smoke --app myapp:queue
        windlass smoke --app myapp:queue --type send_email --type report.build --within 2m
        windlass smoke --json
    """,
)
@click.option(
    "--type", "types", multiple=True, metavar="TYPE", help="Only these types; else all with a sample."
)
@click.option(
    "--within", type=span, default="60s", show_default=True, help="All of them must be through by then."
)
def smoke_test(types: tuple[str, ...], within: timedelta) -> None:
    """Run one sample job of each type and verify what it did; exit 1 unless all is well.

    A type's sample is `@queue.job(smoke={...})`, and `verify=` says whether it did what it should. With --app
    the check is asked here, right after the job; without, a completed job is all that can be said.
    """
    here = session()
    queue = here.queue
    if here.config.app:
        queue.publish()
    chosen = types or tuple(with_samples(queue))
    if not chosen:
        raise Refused("no type has a sample job: @queue.job(smoke={...}) gives one")
    done = smoke(queue, chosen, within=within)
    if here.json:
        click.echo(encode({"types": done, "ok": all(each.ok for each in done)}))
    else:
        click.echo("\n".join(here.screen.table(_SMOKED, [_smoked(each) for each in done])))
    if not all(each.ok for each in done):
        click.get_current_context().exit(1)


_SMOKED = ("TYPE", "OUTCOME", "TOOK", "RELEASE", "WORKER", "DETAIL")


def _smoked(each: Smoked) -> list[Cell | str | int]:
    return [
        one_line(each.type),
        Cell(each.outcome.replace("_", " "), "green" if each.ok else "red"),
        "" if each.seconds is None else took(timedelta(seconds=each.seconds)),
        one_line(each.app or ""),
        one_line(each.worker or ""),
        one_line(each.detail),
    ]


@click.command(
    "plan",
    cls=Command,
    examples="""
        windlass plan --rate 500 --run 2s
        windlass plan --rate 500/s --run 2s --wait 5s --spike 10 --spike-for 30m
        windlass plan --rate 1000/m --run 300ms --payload 2KB --keep 30d --slots 20
        windlass plan
    """,
)
@click.option("--rate", type=rate, metavar="RATE", help="Jobs that come in: 500, 500/s, 1000/m.")
@click.option("--run", type=span, metavar="DURATION", help="How long one takes.")
@click.option("--wait", type=span, default="30s", show_default=True, help="99 of 100 start within this.")
@click.option("--slots", type=int, default=10, show_default=True, metavar="N", help="Slots of one worker.")
@click.option("--spike", type=float, default=1.0, metavar="FACTOR", help="So many times the rate ...")
@click.option("--spike-for", type=span, default="0s", metavar="DURATION", help="... for so long.")
@click.option("--payload", metavar="SIZE", help="Of one job: 500, 2KB.")
@click.option("--keep", type=span, metavar="DURATION", help="How long records are kept; else as it is set.")
def capacity_plan(payload: str | None, **given: Any) -> None:
    """Capacity on paper: from rate, durations and wait to workers, storage and the time after a spike.

    Without --rate and --run they are taken from what this store has seen in the last week: the busiest hour,
    and the mean over all types.
    """
    here = session()
    known = {name: value for name, value in given.items() if value is not None}
    if ("rate" in known) != ("run" in known):
        missing = "run" if "rate" in known else "rate"
        raise must_be(f"--{missing}", None, "given with --rate and --run, or both left out")
    if "rate" not in known:
        known = measured(here.ops().store) | known
    if payload is not None:
        known["payload"] = parse_size(payload, "--payload")
    found = plan(Load(**known))
    click.echo(encode(found) if here.json else "\n".join(_told(found)))


def _told(found: Plan) -> Iterator[str]:
    load = found.load
    yield f"{_rate(load.rate)} that take {took(load.run)}, kept for {duration(load.keep)}:"
    yield ""
    yield f"  running at once   {_busy(found.busy)}"
    in_time = f"99 of 100 start within {duration(load.wait)}"
    yield f"  slots             {number(found.slots_in_time)} so that {in_time}"
    yield f"                    {number(found.slots)} with 30 % to spare, which carry {_rate(found.capacity)}"
    yield f"  workers           {number(found.workers)} of {count(load.slots, 'slot')}"
    yield f"  jobs a day        {found.jobs_per_day:,.0f}"
    a_day, kept, indexed = (
        _bytes(each) for each in (found.bytes_per_day, found.bytes_kept, found.bytes_with_indexes)
    )
    yield f"  storage           {a_day} a day, {kept} kept, {indexed} with indexes"
    if found.spike_jobs:
        drain = "never: nothing is to spare" if found.drain is None else took(found.drain)
        yield ""
        more = count(round(found.spike_jobs), "job")
        yield f"  a spike of {load.spike:g} times for {duration(load.spike_for)} brings {more}"
        yield f"  waiting after it  {count(round(found.backlog), 'job')}"
        yield f"  until all is done {drain}"
        yield f"  to follow it      {count(found.spike_workers, 'worker')}"


def _busy(jobs: float) -> str:
    return _jobs(jobs) if jobs >= 1 else "less than one job"


def _bytes(amount: float) -> str:
    """As disks are sold: a GB of 1,000 MB."""
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if amount >= factor:
            return f"{amount / factor:,.1f} {unit}"
    return count(round(amount), "byte")


def _rate(per_second: float) -> str:
    return f"{_jobs(per_second)}/s" if per_second >= 1 else f"{_jobs(per_second * 60)}/m"


def _jobs(amount: float) -> str:
    told = f"{amount:,.4g}"
    return "1 job" if told == "1" else f"{told} jobs"


COMMANDS = (smoke_test, capacity_plan)
