"""Which jobs are held back, who said so, and how does a worker hear of it?"""

from __future__ import annotations

from tests.conformance.scene import MAIL, REPORT, TYPES, put_one
from windlass.clock import ManualClock
from windlass.store.store import Store


def test_a_pause_says_who_when_and_why(store: Store, other: Store, clock: ManualClock) -> None:
    made = store.pause(MAIL, by="ann", why="the server is being moved")

    assert (made.type, made.by, made.why) == (MAIL, "ann", "the server is being moved")
    assert made.at == store.now()
    assert other.switches().pauses == {MAIL: made}


def test_the_first_pause_stands(store: Store, clock: ManualClock) -> None:
    first = store.pause(MAIL, by="ann")
    clock.advance(60)

    assert store.pause(MAIL, by="bob") == first


def test_a_resumed_type_is_no_longer_paused(store: Store) -> None:
    store.pause(MAIL)
    store.pause(REPORT)

    assert store.resume(MAIL)
    assert not store.resume(MAIL)
    assert set(store.switches().pauses) == {REPORT}


def test_a_look_tells_that_something_was_set_paused_or_resumed(store: Store, other: Store) -> None:
    seen = [store.look("worker-1", TYPES).revision]
    for change in (
        lambda: other.pause(MAIL),
        lambda: other.resume(MAIL),
        lambda: other.set_setting("timeout", "5s"),
        lambda: other.set_setting("timeout", None),
    ):
        change()
        seen.append(store.look("worker-1", TYPES).revision)

    assert seen == sorted(set(seen))
    assert store.look("worker-1", TYPES).revision == seen[-1]


def test_a_pause_that_stands_already_is_no_news(store: Store) -> None:
    store.pause(MAIL)
    seen = store.look("worker-1", TYPES).revision
    store.pause(MAIL)
    store.resume(REPORT)

    assert store.look("worker-1", TYPES).revision == seen


def test_a_paused_type_is_still_accepted(store: Store) -> None:
    store.pause(MAIL)

    assert put_one(store).type == MAIL
