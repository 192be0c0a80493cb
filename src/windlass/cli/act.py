"""How does an operator change jobs from a terminal: some by name, or all that a filter chooses?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import click

from windlass import payload as payloads
from windlass.cli.commands import Command
from windlass.cli.options import F, filter_options, moment, names_any, rate, read_filter, span, tenant_option
from windlass.cli.progress import progress
from windlass.cli.screen import jobs as so_many
from windlass.cli.session import session
from windlass.duration import parse_duration
from windlass.errors import Refused
from windlass.job import LATEST
from windlass.ops import Bulk, Ops, Verb
from windlass.ops.document import encode
from windlass.store.engine import Acted
from windlass.store.jobs import Filter


def bulk_options(command: F) -> F:
    """Add what a verb takes besides ids and the filter."""
    for option in reversed(_BULK):
        command = option(command)
    return command


_BULK: tuple[Callable[[F], F], ...] = (
    click.option(
        "--all", "everything", is_flag=True, help="Every job that the verb is for; no filter needed."
    ),
    click.option("--limit", type=int, metavar="N", help="Only the N oldest that match."),
    click.option("--rate", type=rate, metavar="N/s", help="At most so many a second."),
    click.option("--dry-run", is_flag=True, help="Count only; change nothing."),
    click.option("--yes", "-y", is_flag=True, help="Do not ask."),
    click.option("--why", default="", metavar="TEXT", help="Noted in the job's record."),
)


confirm_option = click.option(
    "--confirm", is_flag=True, help="For types that are marked as sensitive: you have looked at the job."
)


@click.command(
    cls=Command,
    examples="""
        windlass cancel job1 job2
        windlass cancel --type send_email --older-than 2h --dry-run
        windlass cancel --type send_email --where payload.campaign=7 --yes --why "wrong text"
    """,
)
@click.argument("names", nargs=-1, metavar="[ID]...")
@filter_options
@bulk_options
def cancel(names: tuple[str, ...], **choice: Any) -> None:
    """End jobs that wait; those that run are stopped by their workers."""
    act(Verb.CANCEL, names, choice)


@click.command(
    cls=Command,
    examples="""
        windlass replay job1
        windlass replay job1 --payload '{"to": "right@b.c"}'
        windlass replay --type send_email --error ConnectionError --limit 100
        windlass replay --all --rate 50/s --yes
        windlass replay payment:17 --confirm
    """,
)
@click.argument("names", nargs=-1, metavar="[ID]...")
@click.option("--payload", metavar="JSON", help="Run it with this payload instead; for one ID.")
@confirm_option
@filter_options
@bulk_options
def replay(names: tuple[str, ...], payload: str | None, confirm: bool, **choice: Any) -> None:
    """Send dead jobs back to be run: same job, history kept, attempts counted anew.

    The payload must fit the type's schema as it is now. Named by ID, a job that waits for its time is made
    due at once.
    """
    if payload is None:
        act(Verb.REPLAY, names, choice, confirm=confirm)
        return
    if len(names) != 1:
        raise click.UsageError("--payload is for one ID")
    new = payloads.parse(payload)
    ops = session().ops()
    told = {"tenant": choice["tenant"], "confirm": confirm, "why": choice["why"]}
    _tell_each(Verb.REPLAY, names, lambda name: ops.replay(name, payload=new, **told))


@click.command(
    cls=Command,
    examples="""
        windlass rerun job1
        windlass rerun job1 --why "the report was deleted"
    """,
)
@click.argument("name", metavar="ID")
@tenant_option
@confirm_option
@click.option("--why", default="", metavar="TEXT", help="Noted in the new job's record.")
def rerun(name: str, tenant: str | None, confirm: bool, why: str) -> None:
    """Run a completed, cancelled or discarded job again, as a new job with an id of its own.

    It has the same payload, priority and tenant, and not the key. For dead jobs there is `windlass replay`.
    """
    here = session()
    ops = here.ops()
    of = ops.show(name, tenant=tenant).id
    acted = ops.rerun(of, confirm=confirm, why=why)
    click.echo(encode(acted) if here.json else f"{acted.id}: a new run of {of}")


@click.command(
    cls=Command,
    examples="""
        windlass discard job1
        windlass discard --type send_email --older-than 14d --dry-run
        windlass discard --type send_email --older-than 14d --yes
    """,
)
@click.argument("names", nargs=-1, metavar="[ID]...")
@filter_options
@bulk_options
def discard(names: tuple[str, ...], **choice: Any) -> None:
    """Close dead jobs for good. Their records stay until their retention ends."""
    act(Verb.DISCARD, names, choice)


@click.command(
    cls=Command,
    examples="""
        windlass bury job1 --why "kills its worker"
        windlass bury --type resize --where payload.image=17 --dry-run
    """,
)
@click.argument("names", nargs=-1, metavar="[ID]...")
@filter_options
@bulk_options
def bury(names: tuple[str, ...], **choice: Any) -> None:
    """Move jobs that wait to the dead letters; those that run are stopped first."""
    act(Verb.BURY, names, choice)


@click.command(
    cls=Command,
    examples="""
        windlass edit job1 --payload '{"to": "right@b.c"}'
        windlass edit job1 --payload '{"to": "right@b.c"}' --why "the old release has no cc"
    """,
)
@click.argument("name", metavar="ID")
@click.option("--payload", required=True, metavar="JSON", help="The new payload, whole.")
@click.option("--why", default="", metavar="TEXT", help="Noted in the job's record.")
@tenant_option
def edit(name: str, payload: str, why: str, tenant: str | None) -> None:
    """Change a waiting job's payload. For dead jobs there is `windlass dlq edit`.

    The new payload must fit the type's schema. The old one stays in the job's record.
    """
    new = payloads.parse(payload)
    _tell(session().ops().edit(name, tenant=tenant, payload=new, why=why), "has its new payload")


@click.command(
    cls=Command,
    examples="""
        windlass priority job1 9
    """,
)
@click.argument("name", metavar="ID")
@click.argument("priority", type=int, metavar="N")
@tenant_option
def priority(name: str, priority: int, tenant: str | None) -> None:
    """Set a waiting job's priority: 0 to 10, higher first."""
    ops = session().ops()
    _tell(ops.edit(name, tenant=tenant, priority=priority), f"priority is now {priority}")


@click.command(
    cls=Command,
    examples="""
        windlass reschedule job1 --now
        windlass reschedule job1 --delay 10m
        windlass reschedule job1 --at 2030-01-31T09:00:00Z
    """,
)
@click.argument("name", metavar="ID")
@click.option("--now", "at_once", is_flag=True, help="Let it run at once.")
@click.option("--delay", type=span, metavar="DURATION", help="Let it run after this time from now.")
@click.option("--at", type=moment, metavar="TIME", help="Let it run at this time; without a zone it is UTC.")
@tenant_option
def reschedule(
    name: str, at_once: bool, delay: timedelta | None, at: datetime | None, tenant: str | None
) -> None:
    """Change when a waiting job runs."""
    if [at_once, delay is not None, at is not None].count(True) != 1:
        raise click.UsageError("say one of --now, --delay and --at")
    ops = session().ops()
    if at_once:
        _tell(ops.run_now(name, tenant=tenant), "is due now")
        return
    moment = at if at is not None else ops.now() + parse_duration(delay, "--delay", LATEST)
    _tell(ops.edit(name, tenant=tenant, run_at=moment), f"runs at {moment:%Y-%m-%d %H:%M:%S} UTC")


COMMANDS = (cancel, replay, rerun, discard, bury, edit, priority, reschedule)


def act(verb: Verb, names: Sequence[str], choice: dict[str, Any], *, confirm: bool = False) -> None:
    """Do the verb to the jobs that are named, or to those that the filter chooses."""
    options = {name: choice.pop(name) for name in ("everything", "limit", "rate", "dry_run", "yes", "why")}
    options["confirm"] = confirm
    if names:
        tenant = choice.pop("tenant")
        if names_any(choice) or options["everything"] or options["limit"]:
            raise click.UsageError("name jobs by ID or choose them by a filter, not both")
        _act_on_names(verb, names, tenant, options)
        return
    if not names_any(choice) and not options["everything"]:
        raise click.UsageError(f"say what to {verb}: an ID, a filter such as --type, or --all")
    _act_on_matches(verb, read_filter(choice), options)


def _act_on_names(verb: Verb, names: Sequence[str], tenant: str | None, options: dict[str, Any]) -> None:
    """By id or key; `tenant` says whose key it is."""
    ops = session().ops()
    if options["dry_run"]:
        for name in names:
            job = ops.show(name, tenant=tenant)
            click.echo(f"would {verb} {job.id} ({job.type}), which is {job.state}")
        return
    verbs: dict[Verb, Callable[..., Acted]] = {
        Verb.CANCEL: ops.cancel,
        Verb.REPLAY: partial(ops.replay, confirm=options["confirm"]),
        Verb.DISCARD: ops.discard,
        Verb.BURY: ops.bury,
    }

    _tell_each(verb, names, partial(verbs[verb], tenant=tenant, why=options["why"]))


def _tell_each(verb: Verb, names: Sequence[str], do: Callable[[str], Acted]) -> None:
    """One answer per name; a refusal does not keep the others from being done."""
    done: list[Acted] = []
    refused: list[str] = []
    for name in names:
        try:
            done.append(do(name))
        except Refused as error:
            refused.append(str(error))
    if session().json:
        click.echo(encode({"jobs": done, "refused": refused}))
    else:
        for acted in done:
            click.echo(f"{acted.id}: {_PAST[verb] if acted.done else _ASKED}")
    for message in refused:
        click.echo(f"windlass: {message}", err=True)
    if refused:
        click.get_current_context().exit(1)


def _act_on_matches(verb: Verb, where: Filter, options: dict[str, Any]) -> None:
    here = session()
    ops = here.ops()
    count = ops.bulk(verb, where, limit=options["limit"], dry_run=True)
    many = f"at least {so_many(count.matched)}" if count.at_least else so_many(count.matched)
    if options["dry_run"] or not (count.matched or count.at_least):
        said = f"would {verb} {many}" if options["dry_run"] else "no jobs match"
        click.echo(encode(count) if here.json else said)
        return
    if not options["yes"]:
        click.confirm(f"{verb} {many}?", abort=True, err=True)
    told = {name: options[name] for name in ("limit", "rate", "confirm", "why")}
    result = _with_progress(ops, verb, where, count.matched, **told)
    click.echo(encode(result) if here.json else _summary(result))
    for refusal in result.refusals:
        click.echo(f"windlass: {refusal}", err=True)
    if result.refused:
        click.get_current_context().exit(1)


def _with_progress(ops: Ops, verb: Verb, where: Filter, expected: int, **options: Any) -> Bulk:
    with progress(verb.value, expected) as advance:
        return ops.bulk(verb, where, progress=advance, **options)


def _summary(result: Bulk) -> str:
    parts = [f"{so_many(result.done)} {_PAST[result.verb]}"]
    if result.asked:
        parts.append(f"{so_many(result.asked)} running: their workers were asked")
    if result.moved_on:
        parts.append(f"{so_many(result.moved_on)} had moved on by then")
    if result.refused:
        parts.append(f"{so_many(result.refused)} refused")
    return ", ".join(parts)


def _tell(acted: Acted, what: str) -> None:
    click.echo(encode(acted) if session().json else f"{acted.id}: {what}")


_PAST = {
    Verb.CANCEL: "cancelled",
    Verb.REPLAY: "sent back to be run",
    Verb.DISCARD: "discarded",
    Verb.BURY: "moved to the dead letters",
}
_ASKED = "is running; its worker was asked to stop it"
