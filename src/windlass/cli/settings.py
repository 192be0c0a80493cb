"""Settings, limits and circuit breakers."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from importlib.util import find_spec
from typing import Any

import click

from windlass.cli.actions import commands
from windlass.cli.commands import command, group, option, why_option
from windlass.cli.process import chosen
from windlass.cli.screen import duration, one_line, say
from windlass.cli.serve import EXTRA
from windlass.cli.session import Session, answer, end, session, table
from windlass.config import unknown_variables
from windlass.connect import is_new_file
from windlass.errors import InvalidValue, StoreUnavailable, must_be
from windlass.ops import Ops
from windlass.ops.flow import owners
from windlass.ops.words import clock, count
from windlass.policy import limit_text
from windlass.server import listener
from windlass.settings import ALL, KEY, read, split
from windlass.size import size_text
from windlass.store.flow import Breaker, BreakerState
from windlass.url import without_password
from windlass.worker.parts import choose_handlers


@group("""
    windlass config get
    windlass config set send_email.max_attempts 8
    windlass config set send_email.max_attempts --reset
    windlass config validate
""")
def config() -> None:
    """What is configured here, and what operators have set at run time.

    This process: flag over WINDLASS_* over windlass.toml over default. Jobs, kept in the store: TYPE.timeout
    and the like stand above the code of that type; timeout and the like hold where code says nothing.
    """


@config.subcommand("""
    windlass config get
    windlass config get worker.concurrency
    windlass config get retry.base --json
""")
@click.argument("name", required=False)
def get(name: str | None) -> None:
    """Effective values and where each comes from: flag, env, file, stored or default."""
    here = session()
    values = _values(here)
    if name is not None:
        values = [each for each in values if each["name"] == name] or _unset(name, values)
    rows = [
        [each["name"], _text(each["name"], each["value"]), each["source"], each["where"]] for each in values
    ]
    answer({"values": values}, table(("NAME", "VALUE", "SOURCE", "WHERE"), rows))


@config.subcommand("""
    windlass config set keep_ended 14d
    windlass config set retry.base 10s
    windlass config set report.build.timeout 20m
    windlass config set report.build.timeout --reset
""")
@click.argument("name")
@click.argument("value", required=False)
@option("--reset", "Forget what was set: code or default hold again.")
@why_option
def set_command(name: str, value: str | None, reset: bool, why: str) -> None:
    """Set a run-time setting in the store; workers and producers follow within seconds."""
    here = session()
    if reset == (value is not None):
        raise click.UsageError("say either a VALUE or --reset")
    if name in here.config.values:
        raise click.UsageError(
            f"{name} is no run-time setting: give it as a flag, in WINDLASS_* or in windlass.toml"
        )
    job_type, _ = split(name)
    ops = here.ops(create=True)
    ops.set_settings({name: value}, why=why)
    if value is None:
        answer({"name": name, "reset": True}, f"{name}: reset")
        return
    if job_type is not None and job_type not in owners(ops.front.types()):
        kind = "limit_key" if job_type.startswith(KEY) else "type"
        owner = f"{kind} {job_type.removeprefix(KEY)!r}"
        say(f"no {owner} is known yet; the setting holds once there is one")
    answer({"name": name, "value": value}, f"{name} = {value}")


@config.subcommand("""
    windlass config validate
    windlass config validate && systemctl restart my-worker
""")
def validate() -> None:
    """Check windlass.toml, the environment, the app and the stored settings; exit 0 if all is well.

    Finds what the start of a worker or a server would refuse, such as TLS files that do not fit.
    """
    here = session()
    notes = [f"{name} means nothing to Windlass" for name in unknown_variables()]
    if here.config.app:
        names = here.queue.registry.names()
        notes.append(f"app {here.config.app} has the type{'s' if len(names) > 1 else ''} {', '.join(names)}")
    problems = [*_start_problems(here), *_stored_problems(here)]
    notes += here.config.server().warnings
    if here.config.sets("server"):
        notes.append(
            "rates of API keys and limits of requests hold per server: two servers allow twice as much"
        )
    verdict = "The configuration is not valid." if problems else "The configuration is valid."
    lines = [*notes, *(f"wrong: {problem}" for problem in problems), verdict]
    answer({"valid": not problems, "problems": problems, "notes": notes}, lines)
    end(int(bool(problems)))


COMMANDS = (config,)


def _values(here: Session) -> list[dict[str, Any]]:
    """What this process has, then what is set at run time."""
    found: list[tuple[str, Any, str, str]] = []
    for each in here.config.values.values():
        shown = _SAFE[each.name](each.value) if each.name in _SAFE else each.value
        found.append((each.name, shown, each.source, each.where))
    if (ops := _ops_if_any(here)) is not None:
        for stored in ops.settings():
            source = ("stored", "the store") if stored.stored else ("default", "")
            found.append((stored.name, stored.value, *source))
    return [
        {
            "name": name,
            # Durations as people write them.
            "value": duration(value) if isinstance(value, timedelta) else value,
            "source": source,
            "where": where,
        }
        for name, value, source, where in found
    ]


def _start_problems(here: Session) -> list[str]:
    """What the start of a server or a worker would refuse, beyond the values themselves."""
    found = []
    if here.config.sets("server"):
        found += [
            f"the server needs the package {name}: pip install 'windlass[server]'"
            for name in EXTRA
            if find_spec(name) is None
        ]
        try:
            listener.check(here.config.server())
        except InvalidValue as error:
            found.append(str(here.config.placed("server", error)))
    if here.config.app:
        try:
            choose_handlers(here.queue.registry, chosen(here))
        except InvalidValue as error:
            found.append(str(error))
    return found


def _stored_problems(here: Session) -> list[str]:
    ops, server = _ops_if_any(here), here.config.server()
    found = [] if ops is None else list(read(ops.front.settings()).problems)
    # A file that is yet to be made has no key either.
    keyless = is_new_file(here.config.database_url) if ops is None else not ops.keys()
    if keyless and not server.loopback and not server.insecure:
        found.append(f"server.host is {server.host}, and there is no API key: run windlass keys create")
    return found


def _ops_if_any(here: Session) -> Ops | None:
    """Before the first job there is no store; what this process has is worth seeing all the same."""
    try:
        return here.ops()
    except StoreUnavailable as error:
        say(f"run-time settings are not looked at: {error}")
        return None


def _unset(name: str, values: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A type's override that nobody has set is a fair question; any other name is not."""
    try:
        split(name)
    except InvalidValue:
        raise must_be(
            "name", name, f"one of {', '.join(each['name'] for each in values)}, or TYPE.…"
        ) from None
    return [
        {"name": name, "value": None, "source": "default", "where": "not set: the code of the type holds"}
    ]


def _text(name: str, value: Any) -> str:
    """As it would be set. A number alone does not tell what it counts: bytes, seconds or a share."""
    if value is None or value == ():
        return "-"
    if isinstance(value, bool):
        return str(value).lower()
    if name in _SIZES:
        return size_text(value)
    if isinstance(value, float):
        return f"{value:g}" if name.endswith(_SHARES) else duration(timedelta(seconds=value))
    return ",".join(_text(name, each) for each in value) if isinstance(value, tuple) else str(value)


_SIZES = frozenset({"worker.memory", "worker.child_growth"})
_SHARES = ("breaker.share", "low_share")
# Values that hold secrets, and how they may be shown.
_SAFE: dict[str, Callable[[Any], Any]] = {
    "database_url": without_password,
    "encryption_keys": lambda keys: f"{count(len(keys), 'key')}, not shown" if keys else "",
    "alerts.secret": lambda secret: None if secret is None else "***",
}


@command("""
    windlass limit sync_crm --concurrency 2
    windlass limit sync_crm --rate 100/m --burst 10
    windlass limit sync_crm --tenant-concurrency 3
    windlass limit --key crm --concurrency 5
    windlass limit --all --rate 50/s
    windlass limit sync_crm --concurrency none
    windlass limit sync_crm --reset
""")
@click.argument("job_type", metavar="[TYPE]", required=False)
@option("--key KEY", "Limit all types that share this key together.")
@option("--all", "Limit all jobs together.", name="everything")
@option("--concurrency N", "Maximum running at once across all workers ('none' = unlimited).")
@option("--tenant-concurrency N", "Maximum running at once of one tenant.")
@option("--rate N/UNIT", "Maximum starts per s, m, h or d ('none' removes the rate limit).")
@option("--burst N", "With a rate: how many may start at once.")
@option("--reset", "Remove what was set: the limits in code apply again.")
@option("--why", "For the records.", default="")
def limit(
    job_type: str | None, key: str | None, everything: bool, reset: bool, why: str, **bounds: str | None
) -> None:
    """Show or set what may run at once, and how often it may start, over all workers."""
    named = [job_type, None if key is None else KEY + key, ALL if everything else None]
    names = [each for each in named if each is not None]
    if len(names) != 1:
        raise click.UsageError("say one of TYPE, --key and --all")
    [name] = names
    given = {bound: text for bound, text in bounds.items() if text is not None}
    if reset and given:
        raise click.UsageError("say either limits or --reset")
    ops = session().ops()
    found = ops.reset_limit(name, why=why) if reset else ops.set_limit(name, given, why=why)
    answer({"name": name, "limit": found}, f"{name}: {limit_text(found) or 'no limit'}")


@command("""
    windlass breaker sync_crm
    windlass breaker sync_crm open --why "the CRM is down"
    windlass breaker --key crm close
    windlass breaker sync_crm auto
""")
@click.argument("words", nargs=-1, metavar="[TYPE] [open|close|auto]")
@option("--key KEY", "The breaker of all types that share this key.")
@option("--why", "Kept with the change.", default="")
def breaker(words: tuple[str, ...], key: str | None, why: str) -> None:
    """Show a circuit breaker, open or close it by hand, or let outcomes decide again.

    While it is open, no job of the type starts. One that outcomes opened lets a job through from time to
    time, and closes when that succeeds; one that was opened by hand stays open.
    """
    said = [word for word in words if word in tuple(BreakerState)]
    names = [word for word in words if word not in said] + ([] if key is None else [KEY + key])
    if len(names) != 1 or len(said) > 1:
        raise click.UsageError("say one TYPE or --key, and at most one of open, close and auto")
    ops, name = session().ops(), names[0]
    found = ops.set_breaker(name, BreakerState(said[0]), why=why) if said else ops.breaker(name)
    closed = {"name": name, "open": False}
    answer(closed if found is None else found, f"{name}: {_breaker_line(found)}")


FLOW = (*commands("types/"), limit, breaker)


def _breaker_line(found: Breaker | None) -> str:
    if found is None:
        return "closed"
    parts = [f"{'open' if found.open else 'closed'} since {clock(found.at)}"]
    parts += [f"by {one_line(found.by)}"] if found.by else []
    parts += [f"({one_line(found.why)})"] if found.why else []
    parts += ["until outcomes decide again: auto"] if found.by_hand else []
    return " ".join(parts)
