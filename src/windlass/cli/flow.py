"""How are types held back from a terminal, and let go again?"""

from __future__ import annotations

import click

from windlass.cli.commands import Command
from windlass.cli.screen import one_line
from windlass.cli.session import session
from windlass.ops.document import encode
from windlass.policy import limit_text
from windlass.settings import ALL, KEY
from windlass.store.flow import Breaker, BreakerState


@click.command(
    cls=Command,
    examples="""
        windlass pause sync_crm
        windlass pause sync_crm --why "the CRM is being moved"
    """,
)
@click.argument("job_type", metavar="TYPE")
@click.option("--why", default="", help="Kept with the pause.")
def pause(job_type: str, why: str) -> None:
    """Start no more jobs of a type. They are still accepted; those that run go on."""
    here = session()
    made = here.ops().pause(job_type, why=why)
    said = f"{job_type}: paused at {made.at:%Y-%m-%d %H:%M:%S} UTC by {made.by}"
    click.echo(encode(made) if here.json else said)


@click.command(
    cls=Command,
    examples="""
        windlass resume sync_crm
    """,
)
@click.argument("job_type", metavar="TYPE")
@click.option("--why", default="", help="For the records.")
def resume(job_type: str, why: str) -> None:
    """Start jobs of a paused type again."""
    here = session()
    resumed = here.ops().resume(job_type, why=why)
    if here.json:
        click.echo(encode({"type": job_type, "resumed": resumed}))
    else:
        click.echo(f"{job_type}: {'runs again' if resumed else 'was not paused'}")


@click.command(
    cls=Command,
    examples="""
        windlass limit sync_crm --concurrency 2
        windlass limit sync_crm --rate 100/m --burst 10
        windlass limit sync_crm --tenant-concurrency 3
        windlass limit --key crm --concurrency 5
        windlass limit --all --rate 50/s
        windlass limit sync_crm --concurrency none
        windlass limit sync_crm --reset
    """,
)
@click.argument("job_type", metavar="[TYPE]", required=False)
@click.option("--key", metavar="KEY", help="Limit all types that share this key together.")
@click.option("--all", "everything", is_flag=True, help="Limit all jobs together.")
@click.option(
    "--concurrency", metavar="N", help="Maximum running at once across all workers ('none' = unlimited)."
)
@click.option("--tenant-concurrency", metavar="N", help="Maximum running at once of one tenant.")
@click.option(
    "--rate", metavar="N/UNIT", help="Maximum starts per s, m, h or d ('none' removes the rate limit)."
)
@click.option("--burst", metavar="N", help="With a rate: how many may start at once.")
@click.option("--reset", is_flag=True, help="Remove what was set: the limits in code apply again.")
@click.option("--why", default="", help="For the records.")
def limit(
    job_type: str | None, key: str | None, everything: bool, reset: bool, why: str, **bounds: str | None
) -> None:
    """Show or set what may run at once, and how often it may start, over all workers."""
    here = session()
    name = _limited(job_type, key, everything=everything)
    given = {bound: text for bound, text in bounds.items() if text is not None}
    if reset and given:
        raise click.UsageError("say either limits or --reset")
    ops = here.ops()
    found = ops.reset_limit(name, why=why) if reset else ops.set_limit(name, given, why=why)
    click.echo(
        encode({"name": name, "limit": found}) if here.json else f"{name}: {limit_text(found) or 'no limit'}"
    )


@click.command(
    cls=Command,
    examples="""
        windlass breaker sync_crm
        windlass breaker sync_crm open --why "the CRM is down"
        windlass breaker --key crm close
        windlass breaker sync_crm auto
    """,
)
@click.argument("words", nargs=-1, metavar="[TYPE] [open|close|auto]")
@click.option("--key", metavar="KEY", help="The breaker of all types that share this key.")
@click.option("--why", default="", help="Kept with the change.")
def breaker(words: tuple[str, ...], key: str | None, why: str) -> None:
    """Show a circuit breaker, open or close it by hand, or let outcomes decide again.

    While it is open, no job of the type starts. One that outcomes opened lets a job through from time to
    time, and closes when that succeeds; one that was opened by hand stays open.
    """
    here = session()
    named, said = _breaker_words(words, key)
    ops = here.ops()
    found = ops.breaker(named) if said is None else ops.set_breaker(named, said, why=why)
    if here.json:
        click.echo(encode(found if found is not None else {"name": named, "open": False}))
    else:
        click.echo(f"{named}: {_breaker_told(found)}")


COMMANDS = (pause, resume, limit, breaker)


def _breaker_words(words: tuple[str, ...], key: str | None) -> tuple[str, BreakerState | None]:
    said = [word for word in words if word in tuple(BreakerState)]
    names = [word for word in words if word not in said] + ([] if key is None else [KEY + key])
    if len(names) != 1 or len(said) > 1:
        raise click.UsageError("say one TYPE or --key, and at most one of open, close and auto")
    return names[0], BreakerState(said[0]) if said else None


def _breaker_told(found: Breaker | None) -> str:
    if found is None:
        return "closed"
    parts = [f"{'open' if found.open else 'closed'} since {found.at:%Y-%m-%d %H:%M:%S} UTC"]
    parts += [f"by {one_line(found.by)}"] if found.by else []
    parts += [f"({one_line(found.why)})"] if found.why else []
    parts += ["until outcomes decide again: auto"] if found.by_hand else []
    return " ".join(parts)


def _limited(job_type: str | None, key: str | None, *, everything: bool) -> str:
    names = [job_type, None if key is None else KEY + key, ALL if everything else None]
    chosen = [name for name in names if name is not None]
    if len(chosen) != 1:
        raise click.UsageError("say one of TYPE, --key and --all")
    return chosen[0]
