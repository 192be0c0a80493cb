"""Build the commands of declared actions: on one thing, on jobs by name, or on all that a filter chooses."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

import click
import msgspec

from windlass import payload as payloads
from windlass.cli.commands import Command, bulk_options, group, moment, names_any, option, read_filter, span
from windlass.cli.screen import Cell, Row, as_typed, number, one_line, progress, say
from windlass.cli.session import answer, end, facts, session, table
from windlass.errors import Refused, every_problem
from windlass.ops import Ops
from windlass.ops.actions import ACTIONS, Action, Parameter, bulk_action
from windlass.ops.bulk import LEASE, check_arguments, summed_up
from windlass.ops.document import encode
from windlass.ops.words import ago, clock, count
from windlass.store.engine import Acted
from windlass.store.jobs import Filter, check_state
from windlass.store.operations import Operation, State

# Shows an answer to a person, with what was given.
Tell = Callable[[Ops, Any, dict[str, Any]], None]


def commands(path: str, **tell: Tell) -> tuple[Command, ...]:
    """The commands of the actions below a path; `tell` shows the answers of some to a person, by name."""
    chosen = [each for each in ACTIONS.values() if each.path.startswith(path) and not each.own_command]
    return tuple(command_of(each, tell.get(each.name)) for each in chosen)


def command_of(declared: Action, tell: Tell | None = None) -> Command:
    """The command of an action."""
    assert declared.target is not None  # noqa: S101 - every action of this kind names something
    word = declared.target.option.metavar or declared.target.name.upper()
    params: list[click.Parameter] = [click.Argument(["name"], metavar=word)]
    if declared.bulk:
        params = [click.Argument(["names"], nargs=-1, metavar=f"[{word}]...")]
    own: list[click.Parameter] = []
    for each in declared.everything:
        if each.name == "tenant" and not declared.bulk:
            metavar, meaning = each.option.metavar, each.option.help
            params.append(click.Option(["--tenant"], metavar=metavar, help=meaning))
        elif each in declared.parameters and each.required:
            kind = _number if each.base is int else _TYPES.get(each.base, str)
            params.insert(1, click.Argument([each.name], type=kind, metavar=each.option.metavar))
        elif each in declared.parameters:
            own += _options(each)
    # --why comes last.
    params += [*own[:-1], *(bulk_options.params if declared.bulk else []), own[-1]]

    def run(**given: Any) -> None:
        _take_short(declared, given)
        if declared.bulk:
            _on_jobs(declared, given)
            return
        ops, name = session().ops(), given.pop("name")
        done = declared.of(ops)(name, **given)
        if session().json:
            answer(declared.document(name, done), ())
        elif tell is not None:
            tell(ops, done, {**given, "name": name})
        else:
            shown = done if isinstance(done, str) else getattr(done, "id", name)
            click.echo(f"{shown}: {_past(ops, declared, done, given)}")

    return Command(
        declared.command.split()[-1],
        callback=run,
        params=params,
        help=declared.description,
        examples=inspect.cleandoc(declared.examples),
    )


def _number(text: str) -> int:
    """The number behind the ids. The last word is taken for it, also where that is an id."""
    context = click.get_current_context()
    if not text.lstrip("-").isdecimal() and not context.params.get("names", True):
        raise click.UsageError(f"N is missing: {text!r} is not a whole number", context)
    found: int = click.types.convert_type(int)(text)
    return found


def _options(each: Parameter) -> list[click.Parameter]:
    option, flag = each.option, each.option.flag or "--" + each.name.replace("_", "-")
    if each.base is bool:
        return [click.Option([flag, each.name], is_flag=True, help=option.help)]
    kind, default = _TYPES.get(each.base, str), each.default
    if isinstance(default, timedelta):
        default = f"{default.total_seconds():g}s"
    names = [flag, each.name]
    long = click.Option(names, type=kind, default=default, metavar=option.metavar, help=option.help)
    if option.short is None:
        return [long]
    word, value, meaning = option.short
    return [click.Option([word, _SHORT + each.name], flag_value=value, type=kind, help=meaning), long]


def _take_short(declared: Action, given: dict[str, Any]) -> None:
    """Give the value of a short flag, such as --now, to its parameter."""
    for each in declared.parameters:
        if each.option.short is not None and (value := given.pop(_SHORT + each.name)) is not None:
            if given[each.name] is not None:
                raise click.UsageError(f"use exactly one of {each.option.short[0]} and --{each.name}")
            given[each.name] = value


_TYPES: dict[Any, Any] = {int: int, timedelta: span, datetime: moment, Mapping[str, Any]: payloads.parse}
_SHORT = "short_"
_BULK = ("everything", "limit", "rate", "dry_run", "yes")


def _on_jobs(declared: Action, given: dict[str, Any]) -> None:
    names, arguments = given.pop("names"), {each.name: given.pop(each.name) for each in declared.parameters}
    choice = {name: value for name, value in given.items() if name not in _BULK}
    options = {name: given[name] for name in _BULK}
    if not names:
        if not names_any(choice) and not options["everything"]:
            raise click.UsageError("say which jobs: an ID, a filter such as --type, or --all")
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
        _show_names(declared, names, arguments, tenant)
    else:
        _on_names(declared, names, {**arguments, "tenant": tenant})


def _show_names(
    declared: Action, names: Sequence[str], arguments: dict[str, Any], tenant: str | None
) -> None:
    """The dry run for jobs by name; it refuses what the real run would."""
    check_arguments(declared.name, arguments)
    ops, become = session().ops(), declared.told(arguments)
    for name in names:
        job = ops.show(name, tenant=tenant)
        check_state(job, declared.name, declared.states)
        click.echo(f"{job.id} ({job.type}), which is {job.state}, would be {become}")


def _on_names(declared: Action, names: Sequence[str], arguments: dict[str, Any]) -> None:
    """One answer per name; a refusal does not keep the others from being done."""
    ops = session().ops()
    done: list[Acted] = []
    refused: list[str] = []
    for name in names:
        try:
            done.append(declared.of(ops)(name, **arguments))
        except Refused as error:
            refused += every_problem(error)
    # These took one job before they took many, and answer as they did.
    alone = declared.name in _ALONE and len(done) == len(names) == 1
    lines = (f"{one.id}: {_past(ops, declared, one, arguments) if one.done else _ASKED}" for one in done)
    answer(done[0] if alone else {"jobs": done, "refused": refused}, lines)
    for message in refused:
        say(message)
    end(int(bool(refused)))


def _on_matches(declared: Action, where: Filter, arguments: dict[str, Any], options: dict[str, Any]) -> None:
    ops, name = session().ops(), declared.name
    counted = ops.operations.count(name, where, limit=options["limit"], **arguments)
    many = ("at least " if counted.at_least else "") + count(counted.matched, "job")
    become = f"be {declared.told(arguments)}"
    if options["dry_run"] or not (counted.matched or counted.at_least):
        answer(counted, f"{many} would {become}" if options["dry_run"] else "no jobs match")
        return
    if not options["yes"]:
        click.confirm(f"{many} will {become}. Continue?", abort=True, err=True)
    begun = ops.operations.start(
        name, where, limit=options["limit"], rate=options["rate"], counted=counted, **arguments
    )
    if not sys.stderr.isatty():
        # A log has no bar: it names what can be shown, paused and stopped from elsewhere.
        say(f"operation {begun.id} started")
    _show_end(declared, _follow(ops, begun))


def _show_end(declared: Action, operation: Operation) -> None:
    """What became of the jobs; the exit code is 1 if not all of them were reached."""
    result = summed_up(operation)
    rest = {
        "running: their workers were asked": result.asked,
        "had moved on by then": result.moved_on,
        "refused": result.refused,
    }
    parts = [f"{count(result.done, 'job')} {declared.told(operation.arguments)}"]
    parts += [f"{count(many, 'job')} {what}" for what, many in rest.items() if many]
    answer(result, ", ".join(parts))
    for refusal in result.refusals:
        say(refusal)
    if result.state != State.DONE:
        say(f"operation {operation.id} is {result.state} {result.error}")
    end(int(result.refused > 0 or result.state != State.DONE))


def _follow(ops: Ops, operation: Operation) -> Operation:
    """Show how far an operation comes, until its end. Ctrl-C leaves it running."""
    shown = operation.state
    with progress(operation.action, operation.expected) as advance:

        def show(found: Operation) -> None:
            nonlocal shown
            advance(found.reached.matched)
            if found.state is State.PAUSED and shown is not State.PAUSED:
                resume = as_typed(f"windlass operation resume {found.id}")
                say(f"the operation is paused; {resume} lets it go on")
            shown = found.state

        try:
            return ops.operations.follow(operation.id, show)
        except KeyboardInterrupt:
            ways = as_typed(f"windlass operation show {operation.id}, windlass operation stop {operation.id}")
            click.echo(f"\nwindlass: the operation goes on in a server or worker: {ways}", err=True)
            raise


def _past(ops: Ops, declared: Action, answer: Any, arguments: dict[str, Any]) -> str:
    own = _OWN_WORDS.get(declared.command)
    facts = msgspec.structs.asdict(answer) if isinstance(answer, msgspec.Struct) else {}
    return declared.told(arguments | facts) if own is None else own(ops, answer, arguments)


_ALONE = ("priority", "reschedule")
_ASKED = "is running; its worker was asked to stop it"
# Where more is to be said than what the declaration says.
_OWN_WORDS: dict[str, Callable[[Ops, Any, dict[str, Any]], str]] = {
    "edit": lambda _, __, given: "has its new payload" if given["payload"] is not None else "changed",
    "reschedule": lambda ops, acted, given: (
        "is due now" if given["delay"] == timedelta(0) else f"runs at {clock(ops.show(acted.id).run_at)}"
    ),
    "rerun": lambda ops, acted, _: f"a new run of {ops.show(acted.id).rerun_of}",
    "resume": lambda _, resumed, __: "runs again" if resumed else "was not paused",
    "keys revoke": lambda _, key, given: (
        f"valid until {clock(key.revoked_at)}" if given["after"] else "revoked"
    ),
}


@group("""
    windlass operation list
    windlass operation show ID --follow
    windlass operation pause ID
    windlass operation stop ID --why "wrong filter"
""")
def operation() -> None:
    """Operations: actions on many jobs, which go on when the one who asked is gone."""


@operation.subcommand("""
    windlass operation list
    windlass operation list --json
""")
@option("--limit N", "At most N, up to 1000.", default=20, show_default=True)
def list_command(limit: int) -> None:
    """The newest operations."""
    ops = session().ops()
    found, now = ops.operations.list(limit=limit), ops.now()
    head = ("OPERATION", "ACTION", "STATE", "REACHED", "STARTED", "BY", "WHY")
    answer(
        {"operations": found}, table(head, (_row(each, now) for each in found), "no operation was started")
    )


def _row(each: Operation, now: datetime) -> Row:
    state = Cell(each.state, _COLOURS.get(each.state))
    return [each.id, each.action, state, _reached(each), ago(each.created_at, now), each.by, each.why]


@operation.subcommand("""
    windlass operation show ID
    windlass operation show ID --follow
""")
@click.argument("name", metavar="ID")
@option("--follow", "Wait for its end; carry it if no other process does.", name="follows")
def show(name: str, follows: bool) -> None:
    """One operation and how far it has come."""
    ops = session().ops()
    found = ops.operations.show(name)
    if follows:
        _show_end(bulk_action(found.action), _follow(ops, found))
    else:
        answer(found, _lines(found, _steered(ops, found), ops.now()))


for _command in commands("operations/"):
    operation.add_command(_command)

COMMANDS = (*commands("jobs/"), operation)


def _reached(each: Operation) -> str:
    more = "+" if each.at_least else ""
    return f"{number(each.reached.matched)} of {number(each.expected)}{more}"


def _steered(ops: Ops, found: Operation) -> str:
    """Who paused or stopped an operation, when and why, for those who may read the audit log."""
    verb = _STEERED.get(found.state)
    entries = []
    if verb is not None:
        with suppress(Refused):
            entries = ops.audit(target=found.id, verb=verb, limit=1).entries
    return "".join(f"{clock(each.at)} by {each.who}" + f" ({each.why})" * bool(each.why) for each in entries)


def _carrier(found: Operation, now: datetime) -> str:
    """The process that carries it. One that rests for its rate writes that down before."""
    rest = timedelta(seconds=0 if found.rate is None else 2 / found.rate)
    if found.state is State.RUNNING and now - found.updated_at <= LEASE + rest:
        return found.owner
    return f"no process; the last was {found.owner}" if found.owner else ""


def _lines(found: Operation, steered: str, now: datetime) -> Iterator[str]:
    reached = found.reached
    shown = {
        "operation": found.id,
        "action": found.action,
        "filter": encode(found.filter),
        "state": f"{found.state} {found.error}".rstrip(),
        "reached": f"{_reached(found)}: {number(reached.done)} done, {number(reached.asked)} asked of their "
        f"workers, {number(reached.moved_on)} had moved on, {number(reached.refused)} refused",
        "rate": "" if found.rate is None else f"{found.rate:g}/s",
        "limit": "" if found.limit is None else number(found.limit),
        "by": found.by,
        "why": found.why,
        found.state: steered,
        "carried by": _carrier(found, now),
        "started": clock(found.created_at),
        "last moved": clock(found.updated_at),
        "ended": "" if found.ended_at is None else clock(found.ended_at),
        "refused": "; ".join(reached.refusals),
    }
    return facts(((name, one_line(value)) for name, value in shown.items()), indent="")


_STEERED = {State.PAUSED: "pause", State.STOPPED: "stop"}
_COLOURS = {State.RUNNING: "green", State.PAUSED: "yellow", State.FAILED: "red"}
