"""How are the dead letters gone through?"""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import click

from windlass.cli.actions import command_of
from windlass.cli.commands import group, names_any, option, read_filter, stateless_filter, tenant_option
from windlass.cli.jobs import show, show_page
from windlass.cli.screen import Cell, Row, number, say
from windlass.cli.session import answer, session, table
from windlass.errors import InvalidPayload, InvalidValue, WindlassError, WrongState, every_problem
from windlass.job import Job, JobState
from windlass.ops import Ops
from windlass.ops.actions import ACTIONS
from windlass.ops.words import ago
from windlass.payload import parse, seal
from windlass.store.oncall import MOST_DEAD, DeadGroup


@group("""
    windlass dlq list --type send_email
    windlass dlq show job1
    windlass dlq edit job1
    windlass dlq replay --type send_email --limit 100
    windlass dlq discard job1
""")
def dlq() -> None:
    """The dead letters: jobs that were given up, with every attempt's error."""


@dlq.subcommand("""
    windlass dlq list
    windlass dlq list --type send_email --error ConnectionError
    windlass dlq list --group
    windlass dlq list --json
""")
@stateless_filter
@option("--limit N", "Show at most N, up to 1000.", default=50, show_default=True)
@option("--cursor CURSOR", "Go on where an earlier list ended.")
@option("--group", "By type and error, the largest group first; of types only.")
def list_command(limit: int, cursor: str | None, group: bool, **choice: Any) -> None:
    """Dead jobs, newest first."""
    here = session()
    if group:
        if cursor is not None or names_any({**choice, "type": ()}):
            raise click.UsageError("--group takes no other filter than --type")
        _show_groups(choice["type"])
        return
    if not here.json and here.screen.width is not None and cursor is None:
        counts = {each.name: each.counts[JobState.DEAD] for each in here.ops().types()}
        text = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
        click.echo(f"Dead by type: {text or 'none'}\n")
    show_page(read_filter(choice, states=(JobState.DEAD,)), limit, cursor)


@dlq.subcommand("""
    windlass dlq edit job1
    EDITOR=nano windlass dlq edit job1 --why "typo in the address"
    windlass dlq replay job1 --payload '{"to": "a@b.c"}'      the same without an editor
""")
@click.argument("name", metavar="ID")
@tenant_option
@option("--yes -y", "Do not ask before the replay.")
@option("--confirm", "For types that are marked as sensitive: you have looked at the job.")
@option("--why TEXT", "Noted in the job's record.", default="")
@option(
    "--file PATH",
    "Take the payload from a file; no editor is opened.",
    name="path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
)
def edit(name: str, tenant: str | None, yes: bool, confirm: bool, why: str, path: Path | None) -> None:
    """Change a dead job's payload in $EDITOR and send it back to be run.

    The new payload must fit the type's schema. Without the replay nothing is changed: a dead job keeps the
    payload that it died of. The old payload stays in the job's record. What was written is not lost if it
    does not fit: it is kept in a file, which --file takes.
    """
    ops = session().ops()
    job = ops.show(name, tenant=tenant)
    if job.state is not JobState.DEAD:
        raise WrongState(job.id, "edit", job.state, "dead")
    text = _edited(ops, job) if path is None else path.read_text(encoding="utf-8")
    if text is None:
        click.echo("Nothing was changed.", err=True)
        return
    with _kept(job, text, path):
        payload = _checked(ops, job, text)
        if not yes:
            click.confirm(f"replay {job.id} with the new payload?", abort=True, err=True)
        # Whoever was asked has just looked at it.
        acted = ops.replay(job.id, payload=payload, confirm=confirm or not yes, why=why)
    answer(acted, f"{acted.id}: sent back to be run with its new payload")


def _show_groups(types: tuple[str, ...]) -> None:
    here = session()
    ops = here.ops()
    found, now = ops.dead_groups(types), ops.now()
    if not found.groups and not here.json:
        click.echo("There are no dead letters.", err=True)
        return
    head = ("COUNT", "TYPE", "ERROR", "FIRST", "LAST", "UP TO NOW", "SAMPLE", "MESSAGE")
    answer(found, table(head, (_group(each, now) for each in found.groups)))
    if found.capped and not here.json:
        click.echo(f"(of the newest {number(MOST_DEAD)} dead letters)", err=True)


def _group(each: DeadGroup, now: datetime) -> Row:
    first, last, bars = ago(each.first, now), ago(each.last, now), Cell(spark(each.spark))
    return [each.count, each.type, each.error, first, last, bars, each.sample, each.message]


def spark(points: Sequence[int]) -> str:
    """Numbers as a line of small bars; what is not nothing can be seen."""
    most = max(points, default=0)
    return "".join(_BARS[-(-each * (len(_BARS) - 1) // most)] if most else " " for each in points)


_BARS = " ▁▂▃▄▅▆▇█"


for _command in (show, command_of(ACTIONS["replay"]), command_of(ACTIONS["discard"])):
    # A command of the command line at large, with the examples of its name here.
    _own = copy.copy(_command)
    _own.examples = _command.examples.replace("windlass ", "windlass dlq ")
    dlq.add_command(_own)

COMMANDS = (dlq,)


def _edited(ops: Ops, job: Job) -> str | None:
    """The payload as it leaves the editor, again and again until it fits; None if it was left as it is."""
    before = json.loads(bytes(job.payload))
    text = json.dumps(seal.shown(before), indent=2, ensure_ascii=False) + "\n"
    while True:
        edited = click.edit(text, extension=".json")
        if edited is None:
            return None
        try:
            return None if _checked(ops, job, edited) == before else edited
        except (InvalidValue, InvalidPayload) as error:
            if not sys.stdin.isatty():
                return edited
            for line in every_problem(error):
                say(line)
            if not click.confirm("edit again?", err=True, default=True):
                return edited
            text = edited


def _checked(ops: Ops, job: Job, text: str) -> dict[str, Any]:
    payload = seal.restored(parse(text), json.loads(bytes(job.payload)))
    ops.check_payload(job.type, payload)
    return dict(payload)


@contextmanager
def _kept(job: Job, text: str, path: Path | None) -> Iterator[None]:
    """If it comes to nothing, what somebody has written stays in a file."""
    try:
        yield
    except (WindlassError, click.Abort):
        if path is None:
            # Of this user alone, for a payload is nobody else's business.
            with NamedTemporaryFile(
                "w", prefix="windlass-", suffix=".json", delete=False, encoding="utf-8"
            ) as file:
                file.write(text)
            say(f"what you wrote is kept: windlass dlq edit {job.id} --file {file.name}")
        raise
