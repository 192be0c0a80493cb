"""Does a bound verb keep the type of the function that it is?"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from windlass.store.engine import Bound
from windlass.store.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
WRONG = [
    "store.cancel(5)",
    "store.cancel('id', who='ann')",
    "store.find('completed')",
    "store.orphans(5)",
    "store.pause()",
    "store.told('name', '{}', fires='yes')",
    "store.schedules('nightly')",
    "store.beat('worker')",
    "store.extend([], by=5)",
    "store.look('worker', {'mail': '1'})",
    "store.promote(1000)",
    "value: int = store.audit()",
]
RIGHT = [
    "store.cancel('id', by='ann', why='asked to', request_id='r1').done",
    "store.orphans(limit=5)[0].token",
    "store.audit(verb='cancel').entries[0].who",
]


def _bound() -> Iterator[tuple[str, Bound[..., object]]]:
    for name, value in vars(Store).items():
        if isinstance(value, Bound):
            yield name, value


@pytest.mark.slow
def test_a_wrong_argument_to_a_bound_verb_is_a_type_error(tmp_path: Path) -> None:
    lines = ["from windlass.store.store import Store", "", "def use(store: Store) -> None:"]
    first = len(lines) + 1
    program = tmp_path / "use.py"
    program.write_text("\n".join([*lines, *(f"    {line}" for line in (*WRONG, *RIGHT))]) + "\n", "utf-8")
    options = ("--strict", "--no-error-summary", "--config-file", str(ROOT / "pyproject.toml"))
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, "--cache-dir", str(tmp_path / "cache"), str(program)],
        capture_output=True,
        text=True,
        check=False,
    )
    said = {int(line.split(":")[1]) for line in done.stdout.splitlines() if ": error:" in line}
    assert said == set(range(first, first + len(WRONG))), done.stdout + done.stderr


def test_a_bound_verb_has_the_docstring_of_the_verb() -> None:
    found = dict(_bound())
    assert found
    for name, value in found.items():
        assert value.__doc__ == value.verb.__doc__, name
        assert value.__doc__, name
