"""Every declared action has its command, its route, its remote call, its line in the docs and its button."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any, cast

import click
import msgspec
import pytest

from tests.unit.scene import THEN
from windlass.cli.main import cli
from windlass.errors import StoreMismatch
from windlass.ops.actions import ACTIONS, Action, Parameter
from windlass.ops.jobs import Ties
from windlass.ops.remote import RemoteOps
from windlass.server.app import ROUTES
from windlass.store.jobs import Filter
from windlass.store.remote import RemoteStore

ROOT = Path(__file__).parents[2]
TABLE = (ROOT / "docs/how-to/operating.md").read_text(encoding="utf-8")
DASHBOARD = "\n".join(
    page.read_text(encoding="utf-8") for page in sorted((ROOT / "src/windlass/dashboard").rglob("*.js"))
)
# Actions without a button: made in code, or on the command line.
NO_BUTTON = {"schedule add"}


class Server:
    """Stands for a server of another release: it keeps what was asked, and says nothing to everything."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, tuple[str, ...]]] = []
        self.answer: dict[str, Any] = {}

    def counts(self) -> None:
        """Never asked."""

    def now(self) -> datetime:
        return THEN

    def ask(self, method: str, *path: str, **_: object) -> Any:
        self.asked.append((method, path))
        return self.answer


def command_named(words: str) -> click.Command | None:
    found: click.Command | None = cli
    for word in words.split():
        found = found.commands.get(word) if isinstance(found, click.Group) else None
    return found


def has_plain_button(declared: Action) -> bool:
    """Whether the dashboard makes its button from what the server lists: nothing but a reason is asked."""
    return declared.on_job and {each.name for each in declared.parameters} <= {"why", "confirm", "payload"}


def some(each: Parameter) -> Any:
    """A value for a parameter."""
    if isinstance(each.base, type) and issubclass(each.base, msgspec.Struct):
        fields = msgspec.structs.fields(each.base)
        return each.base(**{field.name: _SOME.get(field.name, "x") for field in fields if field.required})
    return {} if "Mapping" in str(each.base) else "x"


_SOME: dict[str, Any] = {"timing": {}, "payload": {}, "roles": ("viewer",)}


@pytest.mark.parametrize("declared", ACTIONS.values(), ids=list(ACTIONS))
def test_an_action_has_its_command_route_line_and_button(declared: Action) -> None:
    if declared.command:
        command = command_named(declared.command)
        assert command is not None, f"there is no command windlass {declared.command}"
        assert declared.own_command or command.help == declared.description
        row = f"| `windlass {declared.command}` | `{declared.method} /{declared.path}` |"
        assert row in TABLE, "python scripts/actions.py writes the table in docs/how-to/operating.md"
    assert (declared.method, f"/api/v1/{declared.path}") in {(each.method, each.path) for each in ROUTES}
    if declared.method != "GET" and declared.command not in NO_BUTTON and not has_plain_button(declared):
        assert f'"{declared.command}"' in DASHBOARD, f"the dashboard has no button for {declared.command}"


@pytest.mark.parametrize("declared", ACTIONS.values(), ids=list(ACTIONS))
def test_an_action_is_asked_of_a_server_and_an_odd_answer_is_a_mismatch(declared: Action) -> None:
    server = Server()
    required = [some(each) for each in declared.everything if each.required]
    act = declared.of(RemoteOps(cast("RemoteStore", server)))
    if declared.name == "ties":
        assert act(*required) == Ties()
    else:
        with pytest.raises(StoreMismatch, match="does not answer as one of this release does"):
            act(*required)
    [(method, path)] = server.asked
    assert method == declared.method
    assert path == tuple("x" if part.startswith("{") else part for part in declared.path.split("/"))


def test_a_count_of_a_server_that_does_not_say_whether_it_is_all_is_taken() -> None:
    server = Server()
    server.answer = {"verb": "cancel", "dry_run": True, "matched": 3}
    counted = RemoteOps(cast("RemoteStore", server)).operations.count("cancel", Filter(types=("t",)))
    assert counted.matched == 3
