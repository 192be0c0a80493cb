"""The sweep of what was left undone, while others do the same or change it: on PostgreSQL all at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import timedelta

import pytest

from tests.conformance.scene import DEAD, DONE, look_up, put_one, settle, take_new, take_one
from tests.conformance.server import run, store, url
from windlass import connect
from windlass.job import Job, JobState, Lease, View
from windlass.store.engine import Row
from windlass.store.jobs import Edit
from windlass.store.postgres.session import PostgresTx
from windlass.store.postgres.store import PostgresStore
from windlass.store.store import Store
from windlass.store.upkeep import Retention

__all__ = ["store", "url"]
NEVER = Retention(ended=timedelta(days=9999), dead=timedelta(days=9999))


@pytest.fixture
def other(url: str, store: Store) -> Iterator[Store]:
    with closing(connect.open(url)) as opened:
        yield opened.store


Meanwhile = Callable[[str, Callable[[], object]], None]


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Meanwhile:
    """Let something happen right after whoever asks first has seen what a statement answers."""
    asked = PostgresTx.rows

    def between(statement: str, happens: Callable[[], object]) -> None:
        left = [happens]

        def rows(tx: PostgresTx, name: str, /, **values: object) -> Sequence[Row]:
            found = asked(tx, name, **values)
            if name == statement and left:
                left.pop()()
            return found

        monkeypatch.setattr(PostgresTx, "rows", rows)

    return between


def child_of(store: Store, *parents: Lease, on_dead: str) -> Job:
    return put_one(store, depends_on=tuple(parent.id for parent in parents), on_dead=on_dead)


def view_of(store: Store, job: Job) -> View | None:
    return look_up(store, job.id).view(store.now())


def vanish(url: str, parent: Lease) -> None:
    """An older release has ended it, saw to nobody, and its record has gone."""
    run(url, f"delete from windlass.jobs where id = '{parent.id}'")


def test_two_sweeps_release_a_child_from_one_parent_once(
    url: str, store: Store, other: Store, meanwhile: Meanwhile
) -> None:
    gone, runs_on = take_new(store), take_new(store)
    child = child_of(store, gone, runs_on, on_dead="run")
    vanish(url, gone)
    meanwhile("dependents_of", lambda: other.prune(NEVER))
    store.prune(NEVER)
    assert view_of(store, child) is View.WAITING
    assert settle(store, runs_on, DONE)
    assert take_one(store).id == child.id


def test_a_child_of_a_parent_that_was_replayed_meanwhile_waits_on(
    url: str, store: Store, other: Store, meanwhile: Meanwhile
) -> None:
    parent = take_new(store)
    child = child_of(store, parent, on_dead="wait")
    assert settle(store, parent, DEAD)
    run(url, "update windlass.dependencies set policy = 'cancel'")
    meanwhile("stale_parents", lambda: other.replay(parent.id))
    store.prune(NEVER)
    assert view_of(store, child) is View.WAITING


def test_a_child_that_was_sent_on_its_way_meanwhile_is_not_cancelled(
    url: str, store: Store, other: Store, meanwhile: Meanwhile
) -> None:
    parent = take_new(store)
    child = child_of(store, parent, on_dead="cancel")
    vanish(url, parent)
    meanwhile("dependents_of", lambda: other.edit(child.id, Edit(run_at=other.now())))
    store.prune(NEVER)
    assert look_up(store, child.id).state is JobState.PENDING


def test_whoever_waits_is_told_of_a_job_that_a_sweep_has_released(url: str, store: Store) -> None:
    told: list[str] = []
    assert isinstance(store, PostgresStore)
    store.wake_with(lambda: told.append("woken"))
    parent = take_new(store)
    child = child_of(store, parent, on_dead="run")
    store.prune(NEVER)
    assert told == []
    vanish(url, parent)
    store.prune(NEVER)
    assert told == ["woken"]
    assert take_one(store).id == child.id
