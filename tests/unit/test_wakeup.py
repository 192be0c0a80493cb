"""Hints that jobs may be there."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest

from tests.waiting import PATIENCE
from windlass.errors import StoreUnavailable
from windlass.loop import Loop
from windlass.wakeup import Listen, Wakeup, Watch

OFTEN = timedelta(milliseconds=1)
# Nothing in a test takes so long that what follows were not within the span.
LONG_SPAN = 10 * PATIENCE


def test_everybody_who_subscribed_is_called_until_they_unsubscribe() -> None:
    wakeup = Wakeup()
    heard: list[str] = []

    def first() -> None:
        heard.append("first")

    def second() -> None:
        heard.append("second")

    wakeup.subscribe(first)
    wakeup.subscribe(second)
    wakeup.notify()
    wakeup.unsubscribe(first)
    wakeup.notify()
    wakeup.close()
    wakeup.notify()
    assert heard == ["first", "second", "second"]


def test_a_watch_notifies_when_the_version_moves_and_only_then() -> None:
    version = 41
    heard: list[int] = []
    watch = Watch(lambda: version, every=timedelta(hours=1))
    Wakeup.subscribe(watch, lambda: heard.append(version))  # to tick by hand, without the thread
    watch.tick()
    watch.tick()
    assert heard == [], "where the number stands at first says nothing"
    version = 42
    watch.tick()
    watch.tick()
    version = 7
    watch.tick()
    assert heard == [42, 7]


def test_a_watch_passes_a_notify_on_without_looking() -> None:
    heard = threading.Event()
    watch = Watch(lambda: 1, every=timedelta(hours=1))
    watch.subscribe(heard.set)
    watch.notify()
    assert heard.wait(PATIENCE)
    watch.close()


def test_a_watch_looks_only_while_somebody_has_subscribed() -> None:
    looked = threading.Event()
    version = 0

    def look() -> int:
        nonlocal version
        version += 1
        looked.set()
        return version

    watch = Watch(look, every=OFTEN)
    assert not looked.wait(0.02)
    heard = threading.Event()
    watch.subscribe(heard.set)
    assert heard.wait(PATIENCE)
    watch.unsubscribe(heard.set)
    looked.clear()
    assert not looked.wait(0.02)
    heard.clear()
    watch.subscribe(heard.set)
    assert heard.wait(PATIENCE), "it looks again for the next one"
    watch.close()


def test_a_watch_that_sees_nothing_move_looks_half_as_often() -> None:
    version = 1
    watch = Watch(lambda: version, every=timedelta(milliseconds=20))
    waits = [watch.tick() for _ in range(40)]
    assert (waits[0], waits[-1]) == (0.02, 0.04)
    version = 2
    assert watch.tick() == 0.02


class Channel:
    """What a Listen tells and hears, without a server."""

    def __init__(self) -> None:
        self.told = 0
        self.free = False
        self.hint = False
        self.broken = False
        # Whether what it tells arrives: a pooler takes it in and that is all.
        self.sound = True
        self.asked = 0
        self.begun = 0
        self._answer = False

    def begin_to_tell(self) -> bool:
        self.told += self.free
        return self.free

    def end_telling(self) -> None:
        pass

    def tell(self) -> None:
        self.told += 1

    def ask(self) -> None:
        self.asked += 1
        self._answer = self.sound

    def hear(self, seconds: float) -> tuple[bool, bool]:
        if self.broken:
            raise StoreUnavailable("cut")
        answer, self._answer = self._answer, False
        return self.hint, answer

    def begin_anew(self) -> None:
        self.begun += 1

    def close(self) -> None:
        pass


def at_rest(channel: Channel) -> Listen:
    """One that has told nothing for a long span, also on a machine that has just begun, and that is ticked by
    hand."""
    listen = Listen(channel)
    listen._telling = Loop("still", lambda: None, every=timedelta(hours=1))  # noqa: SLF001
    listen._told = -LONG_SPAN  # noqa: SLF001
    return listen


def test_a_flood_of_hints_is_told_at_once_and_then_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windlass.wakeup._SPAN", LONG_SPAN)
    channel = Channel()
    listen = at_rest(channel)
    heard: list[int] = []
    Wakeup.subscribe(listen, lambda: heard.append(1))
    for _ in range(1000):
        listen.notify()
        listen.tell()
    # In this process each hint counts; to others the first goes at once, and one follows for all the rest.
    assert len(heard) == 1000
    assert channel.told == 1
    listen.close()
    assert channel.told == 2


def test_the_first_hint_is_sent_by_whoever_notifies_and_those_that_follow_closely_are_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("windlass.wakeup._SPAN", LONG_SPAN)
    channel = Channel()
    channel.free = True
    listen = at_rest(channel)
    listen.notify()
    assert channel.told == 1
    assert listen.tell() is None, "it was told"
    listen.notify()
    assert channel.told == 1
    wait = listen.tell()
    assert wait is not None
    assert 0 < wait <= LONG_SPAN
    listen.close()
    assert channel.told == 2


@pytest.mark.parametrize("by_commit", [True, False], ids=["by-commit", "by-hint"])
def test_what_follows_closely_is_told_at_the_end_of_the_span_without_another_hint(*, by_commit: bool) -> None:
    told, ticks = threading.Event(), threading.Semaphore(0)

    class Telling(Channel):
        def tell(self) -> None:
            told.set()

        def begin_to_tell(self) -> bool:
            # Also if this test has been so slow that the span is over: then it is told at once.
            told.set()
            return True

        def end_telling(self) -> None:
            ticks.release()

    listen = Listen(Telling())
    listen.notify()
    # The thread tells of it, and sees a span later that nothing is left to tell.
    assert ticks.acquire(timeout=PATIENCE)
    assert ticks.acquire(timeout=PATIENCE)
    listen._told -= 1.0  # noqa: SLF001 - a second later
    if by_commit:
        assert listen.first()
    else:
        listen.notify()
        assert ticks.acquire(timeout=PATIENCE)
    told.clear()
    listen.notify()
    assert told.wait(PATIENCE)
    listen.close()


def test_only_after_a_pause_a_commit_may_tell_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windlass.wakeup._SPAN", LONG_SPAN)
    channel = Channel()
    listen = at_rest(channel)
    assert listen.first()
    assert not listen.first(), "it counts as told"
    listen.notify()
    listen._told -= LONG_SPAN  # noqa: SLF001 - so much later
    assert not listen.first(), "something is yet to be told, of which the commit says nothing"
    listen.tell()
    assert channel.told == 1
    listen._told -= LONG_SPAN  # noqa: SLF001 - so much later
    assert listen.first()
    listen.close()
    assert channel.told == 1


def test_what_is_heard_is_passed_on_and_a_broken_channel_is_known() -> None:
    channel = Channel()
    listen = Listen(channel)
    heard: list[int] = []
    Wakeup.subscribe(listen, lambda: heard.append(1))
    listen.hear()
    listen.hear()
    assert (heard, listen.deaf, channel.asked) == ([], False, 1)
    channel.hint = True
    listen.hear()
    assert heard == [1]
    channel.broken = True
    with pytest.raises(StoreUnavailable):
        listen.hear()
    after = [listen.deaf]
    channel.broken = False
    listen.hear()
    after += [listen.deaf]
    listen.hear()
    assert [*after, listen.deaf] == [True, True, False]
    listen.close()


def test_a_channel_that_lets_us_in_and_cuts_us_off_is_tried_ever_more_rarely(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("windlass.wakeup._STEADY", timedelta(seconds=LONG_SPAN))
    heard = threading.Semaphore(0)

    class Cutting(Channel):
        def hear(self, seconds: float) -> tuple[bool, bool]:
            heard.release()
            self.broken = not self.broken
            return super().hear(seconds)

    caplog.set_level("DEBUG", "windlass.loop")
    listen = Listen(Cutting())
    listen.subscribe(lambda: None)
    for _ in range(6):
        assert heard.acquire(timeout=PATIENCE)
    listen.close()
    # Whoever still runs in this process may have something to say, too.
    failed = [each for each in caplog.records if each.getMessage() == "loop.tick_failed"]
    told = [each.__dict__["again_in"] for each in failed if each.__dict__.get("loop") == "listen"]
    # By chance a pause may be half as long, so that a fleet does not come back at one moment.
    assert told[2] >= 2 * told[0], "each is twice as long as the one before"


def test_a_channel_that_takes_everything_in_and_gives_nothing_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("windlass.wakeup._ANSWER_SECONDS", -1.0)
    channel = Channel()
    channel.sound = False
    listen = Listen(channel)
    listen.hear()
    assert (listen.deaf, channel.asked) == (False, 1)
    listen.hear()
    assert (listen.deaf, channel.begun) == (True, 1)
    channel.sound = True
    listen.hear()
    assert listen.deaf, "only an answer tells that it hears again"
    listen.hear()
    assert (listen.deaf, channel.asked) == (False, 2)
    listen.close()
