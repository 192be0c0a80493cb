"""Build the commands of declared actions: on one thing, on jobs by name, or on all that a filter chooses."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import click
import msgspec

from windlass import payload as payloads
from windlass.cli.commands import Command, filter_options, moment, names_any, rate, read_filter, span
from windlass.cli.screen import as_typed, progress
from windlass.cli.screen import jobs as so_many
from windlass.cli.session import session
from windlass.errors import Refused
from windlass.ops import Bulk, Ops
from windlass.ops.actions import ACTIONS, Action, Parameter
from windlass.ops.bulk import summed_up
from windlass.ops.document import encode
from windlass.store.engine import Acted
from windlass.store.jobs import Filter
from windlass.store.operations import Operation, State

# Shows an answer to a person, with what was given.
Tell = Callable[[Ops, Any, dict[str, Any]], None]

# --- what is typed ---


def commands(path: str, **tell: Tell) -> tuple[Command, ...]:
    """The commands of the actions below a path; `tell` shows the answers of some to a person, by name."""
    chosen = [each for each in ACTIONS.values() if each.path.startswith(path) and not each.own_command]
    return tuple(command_of(each, tell.get(each.name)) for each in chosen)


def command_of(declared: Action, tell: Tell | None = None) -> Command:
    """The command of an action."""
    params = [_argument(declared), *(_required(each) for each in declared.parameters if each.required)]
    own = [option for each in declared.parameters if not each.required for option in _options(each)]
    tenant = [_tenant(declared)] if declared.takes_tenant and not declared.bulk else []
    # --why comes last.
    options = [*tenant, *own[:-1], *(_bulk_options() if declared.bulk else []), own[-1]]

    def run(**given: Any) -> None:
        _take_short(declared, given)
        if declared.bulk:
            _on_jobs(declared, given)
        else:
            _on_one(declared, given, tell or partial(_tell, declared))

    return Command(
        declared.command.split()[-1],
        callback=run,
        params=[*params, *options],
        help=declared.description,
        examples=inspect.cleandoc(declared.examples),
    )


def _argument(declared: Action) -> click.Argument:
    assert declared.target is not None  # noqa: S101 - every action of this kind names something
    word = declared.target.option.metavar or declared.target.name.upper()
    if declared.bulk:
        return click.Argument(["names"], nargs=-1, metavar=f"[{word}]...")
    return click.Argument(["name"], metavar=word)


def _required(each: Parameter) -> click.Argument:
    return click.Argument([each.name], type=_TYPES.get(each.base, str), metavar=each.option.metavar)


def _options(each: Parameter) -> list[click.Parameter]:
    option, flag = each.option, each.option.flag or "--" + each.name.replace("_", "-")
    if each.base is bool:
        return [click.Option([flag, each.name], is_flag=True, help=option.help)]
    kind = _TYPES.get(each.base, str)
    made: list[click.Parameter] = [
        click.Option(
            [flag, each.name], type=kind, default=_default(each), metavar=option.metavar, help=option.help
        )
    ]
    if option.short is not None:
        word, value, meaning = option.short
        short = click.Option([word, _SHORT + each.name], flag_value=value, type=kind, help=meaning)
        made.insert(0, short)
    return made


def _default(each: Parameter) -> Any:
    """As it would be typed."""
    return f"{each.default.total_seconds():g}s" if isinstance(each.default, timedelta) else each.default


def _take_short(declared: Action, given: dict[str, Any]) -> None:
    """Give the value of a short flag, such as --now, to its parameter."""
    for each in declared.parameters:
        if each.option.short is not None and (value := given.pop(_SHORT + each.name)) is not None:
            if given[each.name] is not None:
                raise click.UsageError(f"use exactly one of {each.option.short[0]} and --{each.name}")
            given[each.name] = value


def _tenant(declared: Action) -> click.Option:
    [tenant] = [each for each in declared.everything if each.name == "tenant"]
    return click.Option(["--tenant"], metavar=tenant.option.metavar, help=tenant.option.help)


def _bulk_options() -> list[click.Parameter]:
    @filter_options
    @click.option(
        "--all", "everything", is_flag=True, help="Every job that the verb is for; no filter needed."
    )
    @click.option("--limit", type=int, metavar="N", help="Only the N oldest that match.")
    @click.option("--rate", type=rate, metavar="N/s", help="Maximum jobs per second.")
    @click.option("--dry-run", is_flag=True, help="Count only; change nothing.")
    @click.option("--yes", "-y", is_flag=True, help="Do not ask.")
    def options() -> None:
        """Their carrier."""

    return click.command()(options).params


_TYPES: dict[Any, Any] = {
    int: int,
    timedelta: span,
    datetime: moment,
    Mapping[str, Any]: payloads.parse,
}
_SHORT = "short_"
_BULK = ("everything", "limit", "rate", "dry_run", "yes")


# --- one ---


def _on_one(declared: Action, given: dict[str, Any], tell: Tell) -> None:
    here = session()
    ops, name = here.ops(), given.pop("name")
    answer = declared.of(ops)(name, **given)
    if here.json:
        click.echo(encode(declared.document(name, answer)))
    else:
        tell(ops, answer, {**given, "name": name})


def _tell(declared: Action, ops: Ops, answer: Any, given: dict[str, Any]) -> None:
    name = answer if isinstance(answer, str) else getattr(answer, "id", given["name"])
    click.echo(f"{name}: {_told(ops, declared, answer, given)}")


# --- jobs by name, or by a filter ---


def _on_jobs(declared: Action, given: dict[str, Any]) -> None:
    names, arguments = given.pop("names"), {each.name: given.pop(each.name) for each in declared.parameters}
    choice = {name: value for name, value in given.items() if name not in _BULK}
    options = {name: given[name] for name in _BULK}
    if not names:
        if not names_any(choice) and not options["everything"]:
            raise click.UsageError(f"say what to {declared.name}: an ID, a filter such as --type, or --all")
        if arguments.get("payload") is not None:
            raise click.UsageError("--payload is for one ID")
        arguments.pop("payload", None)
        _on_matches(declared, read_filter(choice), arguments, options)
        return
    tenant = choice.pop("tenant")
    if names_any(choice) or options["everything"] or options["limit"]:
        raise click.UsageError("name jobs by ID or choose them by a filter, not both")
    if len(names) > 1 and arguments.get("payload") is not None:
        raise click.UsageError("--payload is for one ID")
    if options["dry_run"]:
        ops = session().ops()
        for name in names:
            job = ops.show(name, tenant=tenant)
            click.echo(f"would {declared.name} {job.id} ({job.type}), which is {job.state}")
    else:
        _on_names(declared, names, {**arguments, "tenant": tenant})


def _on_names(declared: Action, names: Sequence[str], arguments: dict[str, Any]) -> None:
    """One answer per name; a refusal does not keep the others from being done."""
    here = session()
    ops = here.ops()
    done: list[Acted] = []
    refused: list[str] = []
    for name in names:
        try:
            done.append(declared.of(ops)(name, **arguments))
        except Refused as error:
            refused.append(str(error))
    if here.json:
        # These took one job before they took many, and answer as they did.
        alone = declared.name in _ALONE and len(done) == len(names) == 1
        click.echo(encode(done[0] if alone else {"jobs": done, "refused": refused}))
    else:
        for acted in done:
            told = _told(ops, declared, acted, arguments) if acted.done else _ASKED
            click.echo(f"{acted.id}: {told}")
    for message in refused:
        click.echo(f"windlass: {message}", err=True)
    if refused:
        click.get_current_context().exit(1)


def _on_matches(declared: Action, where: Filter, arguments: dict[str, Any], options: dict[str, Any]) -> None:
    here, name = session(), declared.name
    ops = here.ops()
    count = ops.operations.count(name, where, limit=options["limit"])
    many = f"at least {so_many(count.matched)}" if count.at_least else so_many(count.matched)
    if options["dry_run"] or not (count.matched or count.at_least):
        said = f"would {name} {many}" if options["dry_run"] else "no jobs match"
        click.echo(encode(count) if here.json else said)
        return
    if not options["yes"]:
        click.confirm(f"{name} {many}?", abort=True, err=True)
    begun = ops.operations.start(
        name, where, limit=options["limit"], rate=options["rate"], counted=count, **arguments
    )
    show_end(declared, follow(ops, begun))


# --- what is told ---


def show_end(declared: Action, operation: Operation) -> None:
    """What became of the jobs; the exit code is 1 if not all of them were reached."""
    result = summed_up(operation)
    click.echo(encode(result) if session().json else _summary(result, declared.told(operation.arguments)))
    for refusal in result.refusals:
        click.echo(f"windlass: {refusal}", err=True)
    if result.state != State.DONE:
        click.echo(f"windlass: operation {operation.id} is {result.state} {result.error}".rstrip(), err=True)
    if result.refused or result.state != State.DONE:
        click.get_current_context().exit(1)


def follow(ops: Ops, operation: Operation) -> Operation:
    """Show how far an operation comes, until its end. Ctrl-C leaves it running."""
    shown = operation.state
    with progress(operation.action, operation.expected) as advance:

        def show(found: Operation) -> None:
            nonlocal shown
            advance(found.reached.matched)
            if found.state is State.PAUSED and shown is not State.PAUSED:
                resume = as_typed(f"windlass operation resume {found.id}")
                click.echo(f"windlass: the operation is paused; {resume} lets it go on", err=True)
            shown = found.state

        try:
            return ops.operations.follow(operation.id, show)
        except KeyboardInterrupt:
            ways = as_typed(f"windlass operation show {operation.id}, windlass operation stop {operation.id}")
            click.echo(f"\nwindlass: the operation goes on in a server or worker: {ways}", err=True)
            raise


def _summary(result: Bulk, past: str) -> str:
    parts = [f"{so_many(result.done)} {past}"]
    if result.asked:
        parts.append(f"{so_many(result.asked)} running: their workers were asked")
    if result.moved_on:
        parts.append(f"{so_many(result.moved_on)} had moved on by then")
    if result.refused:
        parts.append(f"{so_many(result.refused)} refused")
    return ", ".join(parts)


def _told(ops: Ops, declared: Action, answer: Any, arguments: dict[str, Any]) -> str:
    own = _OWN_WORDS.get(declared.command)
    facts = msgspec.structs.asdict(answer) if isinstance(answer, msgspec.Struct) else {}
    return declared.told(arguments | facts) if own is None else own(ops, answer, arguments)


def _rescheduled(ops: Ops, acted: Acted, given: dict[str, Any]) -> str:
    if given["delay"] == timedelta(0):
        return "is due now"
    return f"runs at {ops.show(acted.id).run_at:%Y-%m-%d %H:%M:%S} UTC"


_ALONE = ("priority", "reschedule")
_ASKED = "is running; its worker was asked to stop it"
# Where more is to be said than what the declaration says.
_OWN_WORDS: dict[str, Callable[[Ops, Any, dict[str, Any]], str]] = {
    "edit": lambda _, __, given: "has its new payload" if given["payload"] is not None else "changed",
    "reschedule": _rescheduled,
    "rerun": lambda ops, acted, _: f"a new run of {ops.show(acted.id).rerun_of}",
    "resume": lambda _, resumed, __: "runs again" if resumed else "was not paused",
    "keys revoke": lambda _, key, given: (
        f"valid until {key.revoked_at:%Y-%m-%d %H:%M:%S} UTC" if given["after"] else "revoked"
    ),
}
COMMANDS = commands("jobs/")
