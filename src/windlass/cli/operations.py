"""Show operations, which do one action to many jobs, and steer them."""

from __future__ import annotations

import click

from windlass.cli.actions import commands, follow, show_end
from windlass.cli.commands import Group
from windlass.cli.screen import Cell, ago, number, one_line
from windlass.cli.session import session
from windlass.ops.actions import bulk_action
from windlass.ops.document import encode
from windlass.store.operations import Operation, State


@click.group(
    cls=Group,
    examples="""
        windlass operation list
        windlass operation show ID --follow
        windlass operation pause ID
        windlass operation stop ID --why "wrong filter"
    """,
)
def operation() -> None:
    """Operations: actions on many jobs, which go on when the one who asked is gone."""


@operation.command(
    "list",
    examples="""
        windlass operation list
        windlass operation list --json
    """,
)
@click.option("--limit", default=20, show_default=True, metavar="N", help="At most N, up to 1000.")
def list_operations(limit: int) -> None:
    """The newest operations."""
    here = session()
    ops = here.ops()
    found, now = ops.operations.list(limit=limit), ops.now()
    if here.json:
        click.echo(encode({"operations": found}))
    elif found:
        head = ("OPERATION", "ACTION", "STATE", "REACHED", "STARTED", "BY", "WHY")
        click.echo(
            "\n".join(here.screen.table(head, [_row(each, ago(each.created_at, now)) for each in found]))
        )
    else:
        click.echo("no operation was started")


@operation.command(
    examples="""
        windlass operation show ID
        windlass operation show ID --follow
    """,
)
@click.argument("name", metavar="ID")
@click.option(
    "--follow", "follows", is_flag=True, help="Wait for its end; carry it if no other process does."
)
def show(name: str, follows: bool) -> None:
    """One operation and how far it has come."""
    here = session()
    ops = here.ops()
    found = ops.operations.show(name)
    if follows:
        show_end(bulk_action(found.action), follow(ops, found))
    elif here.json:
        click.echo(encode(found))
    else:
        click.echo("\n".join(_lines(found)))


for _command in commands("operations/"):
    operation.add_command(_command)

COMMANDS = (operation,)


def _row(each: Operation, started: str) -> list[Cell | str | int]:
    return [
        each.id,
        each.action,
        Cell(each.state, _COLOURS.get(each.state)),
        _reached(each),
        started,
        one_line(each.by),
        one_line(each.why),
    ]


def _reached(each: Operation) -> str:
    more = "+" if each.at_least else ""
    return f"{number(each.reached.matched)} of {number(each.expected)}{more}"


def _lines(found: Operation) -> list[str]:
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
        "carried by": found.owner,
        "started": f"{found.created_at:%Y-%m-%d %H:%M:%S} UTC",
        "last moved": f"{found.updated_at:%Y-%m-%d %H:%M:%S} UTC",
        "ended": "" if found.ended_at is None else f"{found.ended_at:%Y-%m-%d %H:%M:%S} UTC",
        "refused": "; ".join(reached.refusals),
    }
    return [f"{name:<11} {one_line(value)}" for name, value in shown.items() if value]


_COLOURS = {State.RUNNING: "green", State.PAUSED: "yellow", State.FAILED: "red"}
