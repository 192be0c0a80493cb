"""How does a store come from one schema to the next, and who may work on it meanwhile?

The migrations are the tests' own: a first one from the shelf, and what each test puts on top of it.
"""

from __future__ import annotations

from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from tests.conformance.contenders import at_once, won
from tests.conformance.scene import put_one
from tests.conformance.shelves import FIRST, OURS, shelf
from windlass import connect
from windlass.errors import StoreError, StoreMismatch
from windlass.store import migration

MORE = "create table windlass.more (a integer);\n"
MOST = MORE.replace("more", "most")


def opens(url: str, folder: Path | None = None) -> None:
    with closing(connect.open(url, migrations=folder)) as opened:
        put_one(opened.store)


def test_a_new_store_gets_every_migration(url: str, tmp_path: Path) -> None:
    folder = shelf(tmp_path, "-- expand\n" + MORE)
    opens(url, folder)
    assert connect.schema(url, migrations=folder).pending == ()


def test_a_text_that_serves_every_database_is_written_once(url: str, tmp_path: Path) -> None:
    folder = shelf(tmp_path)
    (folder / f"{FIRST}.sql").write_text("-- expand\n" + MORE)
    opens(url, folder)
    assert connect.schema(url, migrations=folder).number == OURS + 1
    later = shelf(tmp_path, "-- expand\n" + MOST.replace("windlass.most", "windlass.others"))
    (later / f"{OURS + 2:04}_both.sql").write_text("-- expand\n" + MOST)
    assert [each.number for each in migration.load("postgres", later)] == list(range(1, OURS + 3))


def test_a_new_store_is_there_with_all_of_its_migrations_or_not_at_all(url: str, tmp_path: Path) -> None:
    folder = shelf(tmp_path, "-- expand\ncreate table windlass.settings (a integer);\n")
    with pytest.raises(Exception, match=r"settings.* already exists"):
        connect.open(url, migrations=folder)
    assert connect.schema(url).number is None
    opens(url)


def test_an_old_store_is_changed_by_migrating_alone(url: str, tmp_path: Path) -> None:
    opens(url)
    folder = shelf(tmp_path, "-- expand\n" + MORE)
    with pytest.raises(
        StoreMismatch, match=f"has schema {OURS}, this Windlass needs {OURS + 1}: run `windlass db migrate`"
    ):
        connect.open(url, migrations=folder)
    found = connect.schema(url, migrations=folder)
    assert (found.number, found.newest, found.pending, found.usable) == (OURS, OURS + 1, (FIRST,), False)
    told: list[str] = []
    assert connect.migrate(url, migrations=folder, say=told.append) == [FIRST]
    assert told == [f"applying {FIRST}"]
    opens(url, folder)


def test_code_of_the_release_before_goes_on_after_an_expanding_migration(url: str, tmp_path: Path) -> None:
    with closing(connect.open(url)) as before:
        connect.migrate(url, migrations=shelf(tmp_path, "-- expand\n" + MORE, "-- expand\n" + MOST))
        put_one(before.store)
    opens(url)
    assert connect.schema(url).ahead == (OURS + 1, OURS + 2)
    assert connect.migrate(url) == []


def test_code_that_does_not_know_a_contracting_migration_is_refused_in_words(
    url: str, tmp_path: Path
) -> None:
    connect.migrate(url, migrations=shelf(tmp_path, "-- contract\n" + MORE, "-- expand\n" + MOST))
    for use in (connect.open, connect.migrate):
        with pytest.raises(
            StoreMismatch, match=rf"has schema {OURS + 2}, but .* up to {OURS}: install a newer"
        ):
            use(url)


@pytest.mark.parametrize("first", ["-- expand\n", "-- expand, statement by statement\n"])
def test_migrators_at_one_instant_apply_each_migration_once(url: str, tmp_path: Path, first: str) -> None:
    opens(url)
    folder = shelf(tmp_path, first + MORE, "-- expand\n" + MOST)
    applied = won(at_once(*(partial(connect.migrate, url, migrations=folder) for _ in range(4))))
    assert sorted(map(len, applied)) == [0, 0, 0, 2]


def test_a_migration_that_fails_changes_nothing(url: str, tmp_path: Path) -> None:
    opens(url)
    with pytest.raises(StoreError):
        connect.migrate(url, migrations=shelf(tmp_path, "-- expand\n" + MORE + "nonsense;\n"))
    assert connect.migrate(url, migrations=shelf(tmp_path, "-- expand\n" + MORE)) == [FIRST]


def test_a_migration_that_goes_step_by_step_is_repeated_from_its_first_step(url: str, tmp_path: Path) -> None:
    opens(url)
    steps = "-- expand, statement by statement\n" + MORE.replace("table", "table if not exists")
    with pytest.raises(StoreError):
        connect.migrate(url, migrations=shelf(tmp_path, steps + "nonsense;\n"))
    told: list[str] = []
    more = "create table windlass.most (a integer);\n"
    assert connect.migrate(url, migrations=shelf(tmp_path, steps + more), say=told.append) == [FIRST]
    assert told == [f"applying {FIRST}, step 1 of 2", f"applying {FIRST}, step 2 of 2"]


def test_looking_at_the_schema_makes_nothing(url: str) -> None:
    found = connect.schema(url)
    assert (found.number, len(found.pending)) == (None, len(migration.load("sqlite")))
    with pytest.raises(StoreError):
        connect.open(url, create=False)
