"""Which changes of the schema are there, which has a database seen, and may this code work on it?

A migration is a numbered file of plain SQL. Its first line says what it means to others:

    -- expand      adds only: code of the release before goes on working on the new schema
    -- contract    takes something away: code that does not know it must not touch the store any more

`, statement by statement` behind either: it runs outside a transaction, as `create index concurrently` must.
Each of its statements ends with a line and can be repeated, for it may be cut off between any two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from operator import attrgetter
from pathlib import Path

import msgspec

from windlass.errors import StoreMismatch
from windlass.store import statements
from windlass.store.engine import Tx

FOLDER = Path(__file__).parent / "migrations"
_ALONE = ", statement by statement"


class Kind(StrEnum):
    """What a migration means to code that does not know it."""

    EXPAND = "expand"
    CONTRACT = "contract"


class Migration(msgspec.Struct, frozen=True, kw_only=True):
    """One change of the schema."""

    number: int
    name: str
    kind: Kind
    # Outside a transaction, statement by statement.
    alone: bool
    text: str

    @property
    def label(self) -> str:
        """The name of its file."""
        return f"{self.number:04}_{self.name}"

    def for_new_store(self) -> Migration:
        """The same where nobody writes yet: indexes are built at once, and so within a transaction."""
        text = self.text.replace(" index concurrently ", " index ")
        return msgspec.structs.replace(self, text=text, alone=False)

    def steps(self, is_whole: Callable[[str], bool]) -> Iterator[str]:
        """Its statements one by one; a statement ends with a line, if it `is_whole`."""
        statement = ""
        for line in self.text.splitlines(keepends=True):
            statement += line
            if is_whole(statement):
                yield statement
                statement = ""


class Schema(msgspec.Struct, frozen=True, kw_only=True):
    """The schema of a database beside the one that this code knows."""

    # None: there are no tables of ours.
    number: int | None
    newest: int
    pending: tuple[str, ...]
    # Migrations of a newer release, and whether this code may work on what they made.
    ahead: tuple[int, ...] = ()
    usable: bool = True
    # Left half-made by a build that was cut off.
    invalid_indexes: tuple[str, ...] = ()


def load(dialect: str, folder: Path | None = None) -> list[Migration]:
    """Every migration of a dialect, in order: its own, and those whose text serves every dialect."""
    base = folder or FOLDER
    paths = sorted([*base.glob("*.sql"), *(base / dialect).glob("*.sql")], key=attrgetter("name"))
    return [_read(path, dialect) for path in paths]


def applied(tx: Tx) -> dict[int, str] | None:
    """The number and kind of each migration that a database has seen; None if it has no tables of ours."""
    [there] = tx.rows("has_schema")
    return {row["number"]: row["kind"] for row in tx.rows("applied")} if there["schema"] else None


def note(tx: Tx, each: Migration) -> None:
    """A migration was applied."""
    tx.change("note_migration", number=each.number, name=each.name, kind=each.kind.value, now=tx.now)


def apply_alone(
    tx: Tx,
    each: Migration,
    steps: Iterator[str],
    execute: Callable[[str], object],
    say: Callable[[str], None],
) -> bool:
    """Apply a migration outside a transaction, statement by statement."""
    every = list(steps)
    for number, statement in enumerate(every, 1):
        say(f"applying {each.label}, step {number} of {len(every)}")
        execute(statement)
    note(tx, each)
    return True


def compare(
    applied: Mapping[int, str] | None, known: Sequence[Migration], invalid_indexes: Sequence[str] = ()
) -> Schema:
    """What a database has seen (number and kind; None if it has no tables), beside what this code knows."""
    numbers = {each.number for each in known}
    seen = applied or {}
    ahead = {number: kind for number, kind in seen.items() if number > max(numbers)}
    pending = tuple(each.label for each in known if each.number not in seen)
    return Schema(
        number=None if applied is None else max(seen, default=0),
        newest=max(numbers),
        pending=pending,
        ahead=tuple(sorted(ahead)),
        usable=not pending and Kind.CONTRACT not in ahead.values(),
        invalid_indexes=tuple(invalid_indexes),
    )


def check(found: Schema, shown: str) -> None:
    """Refuse a store that this code must not touch."""
    if not found.usable:
        check_known(found, shown)
        raise StoreMismatch(
            f"{shown} has schema {found.number}, this Windlass needs {found.newest}: "
            "run `windlass db migrate`"
        )


def check_known(found: Schema, shown: str) -> None:
    """Refuse a store that only a newer release may change."""
    if found.ahead and not found.usable:
        raise StoreMismatch(
            f"{shown} has schema {found.number}, but this Windlass knows up to {found.newest}: "
            "install a newer Windlass"
        )


def _read(path: Path, dialect: str) -> Migration:
    text = path.read_text(encoding="utf-8")
    first = text.partition("\n")[0].removeprefix("-- ")
    number, _, name = path.stem.partition("_")
    return Migration(
        number=int(number),
        name=name,
        kind=Kind(first.removesuffix(_ALONE)),
        alone=first.endswith(_ALONE),
        text=statements.spelled(text, dialect),
    )
