"""A server's loop makes a draft without a look at the store, or says that it takes one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import pytest

from windlass import Queue
from windlass.clock import ManualClock
from windlass.errors import InvalidPayload, InvalidValue, KeyMissing
from windlass.job import NewJob
from windlass.queue.producer import NotAtHand


class Pair:
    """The queue of an application, and that of a server, which has no handlers."""

    def __init__(self, url: str) -> None:
        self.clock = ManualClock()
        self.shop, self.server = Queue(url), Queue(url, clock=self.clock)

        @self.shop.job(max_attempts=2)
        def add(a: int, b: int = 0) -> None: ...

        @self.shop.job(encrypt=["secret"])
        def hide(secret: str) -> None: ...

        self.shop.publish()
        self.sent(b'{"a": 1}')

    def sent(self, text: bytes, **options: Any) -> NewJob:
        return self.server.draft_sent("add", text, options)

    def at_hand(self, text: bytes, name: str = "add", **options: Any) -> NewJob:
        return self.server.draft_at_hand(name, text, options)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    pair = Pair(f"sqlite:///{tmp_path / 'jobs.db'}")
    with pair.shop, pair.server:
        yield pair


@pytest.fixture
def deaf(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> Pair:
    """The same while the server's store must not be asked."""

    def never(*_: object) -> NoReturn:
        pytest.fail("the store was asked")

    for verb in ("types", "settings", "get", "depths"):
        monkeypatch.setattr(pair.server.store, verb, never)
    return pair


@pytest.mark.parametrize("options", [{}, {"priority": 7, "key": "k", "tenant": "acme", "delay": 5}])
def test_a_draft_at_hand_is_the_draft(pair: Pair, options: dict[str, Any]) -> None:
    text = b'{"b": 2, "a": 1}'
    drafts = pair.sent(text, **options), pair.at_hand(text, **options)
    first, second = (msgspec.structs.replace(draft, id="") for draft in drafts)
    assert first == second
    assert second.max_attempts == 2


def test_the_store_is_not_asked_for_it(deaf: Pair) -> None:
    assert deaf.at_hand(b'{"a":1}').payload == b'{"a":1}'


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("nobody", b"{}"),
        ("add", b'{"a": "x"}'),
        ("add", b'{"c": 1}'),
        ("hide", b'{"secret": "x"}'),
        ("shell", b"{}"),
    ],
)
def test_what_may_be_news_or_must_be_sealed_is_not_at_hand(deaf: Pair, name: str, text: bytes) -> None:
    with pytest.raises(NotAtHand):
        deaf.at_hand(text, name)


def test_what_operators_have_set_is_looked_at_again_after_a_while(deaf: Pair) -> None:
    deaf.clock.advance(5)
    with pytest.raises(NotAtHand):
        deaf.at_hand(b'{"a": 1}')


def test_a_type_that_has_begun_to_encrypt_is_not_stored_in_the_clear(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WINDLASS_ENCRYPTION_KEYS", raising=False)
    with Queue(pair.server.url) as newer:

        @newer.job(encrypt=["a"])
        def add(a: int, b: int = 0) -> None: ...

        newer.publish()
    pair.clock.advance(5)
    with pytest.raises(KeyMissing):
        pair.sent(b'{"a": 1}')
    with pytest.raises(NotAtHand):
        pair.at_hand(b'{"a": 1}')


def test_what_was_looked_at_in_a_store_that_is_closed_is_not_at_hand(pair: Pair) -> None:
    pair.server.close()
    with pytest.raises(NotAtHand):
        pair.at_hand(b'{"a": 1}')


@pytest.mark.parametrize("text", [b'{"a": 1, "a": 2}', b'{"a": NaN}', b"[1]", b'{"a": 1}}'])
def test_what_is_wrong_whatever_the_store_says_is_refused_at_once(deaf: Pair, text: bytes) -> None:
    with pytest.raises((InvalidValue, InvalidPayload)):
        deaf.at_hand(text)
