"""Producers that have not got the handler: the store's catalogue judges for it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from windlass import InvalidPayload, InvalidValue, Queue, Refused, UnknownType
from windlass.clock import ManualClock
from windlass.store.jobs import Filter


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture
def app(url: str) -> Iterator[Queue]:
    """The process that has the handlers, and has used its queue once."""
    with Queue(url, shell=True) as app:  # noqa: S604 - the switch in question

        @app.job(max_attempts=3, priority=7, version=2)
        def send(to: str, when: datetime | None = None) -> None: ...

        app.enqueue("send", {"to": "first"})
        yield app


@pytest.fixture
def stranger(url: str) -> Iterator[Queue]:
    with Queue(url) as stranger:
        yield stranger


def count(queue: Queue) -> int:
    return queue.store.count(Filter(), limit=1000)


def test_a_stranger_enqueues_by_name_with_what_the_type_says(app: Queue, stranger: Queue) -> None:
    job = stranger.enqueue("send", {"to": "a", "when": "2030-01-01T00:00:00Z"}).get()
    assert bytes(job.payload) == b'{"to":"a","when":"2030-01-01T00:00:00Z"}'
    assert (job.max_attempts, job.priority, job.schema_version) == (3, 7, 2)


def test_options_and_async_work_by_name_too(app: Queue, stranger: Queue) -> None:
    async def main() -> Any:
        return await stranger.enqueue_async("send", {"to": "a"}, key="k", priority=1)

    assert asyncio.run(main()).get().priority == 1
    drafts = [stranger.draft("send", {"to": str(number)}, tenant="t") for number in range(3)]
    assert [handle.get().tenant for handle in stranger.enqueue_many(drafts)] == ["t"] * 3


@pytest.mark.parametrize(
    ("payload", "complaint"),
    [
        ({}, "send: payload.to is missing; it must be a string"),
        ({"to": 5}, "send: payload.to must be a string, got 5"),
        ({"to": "a", "cc": "b"}, "send: payload.cc is unknown; the fields of payload are: to, when"),
        ({"to": "a", "when": "soon"}, "send: payload.when must be a time such as 2026-01-31T12:00:00Z or"),
        ({"to": "x" * 70_000}, "send: payload must be at most 65536 bytes"),
        ({"to": "a\0"}, "send: payload.to must be text without a NUL"),
        ([], "send: payload must be a JSON object"),
        (None, "send: payload must be a JSON object"),
    ],
)
def test_app_and_stranger_refuse_the_same_in_the_same_words(
    app: Queue, stranger: Queue, payload: Any, complaint: str
) -> None:
    for queue in (app, stranger):
        with pytest.raises(InvalidPayload) as caught:
            queue.enqueue("send", payload)
        assert str(caught.value).startswith(complaint)
    assert count(app) == 1


def test_the_app_takes_what_its_annotations_name_and_a_stranger_plain_json_only(
    app: Queue, stranger: Queue
) -> None:
    moment = datetime(2030, 1, 1, tzinfo=UTC)
    assert app.enqueue("send", {"to": "a", "when": moment}).created
    with pytest.raises(InvalidPayload, match=r"payload\.when must be plain JSON"):
        stranger.enqueue("send", {"to": "a", "when": moment})


def test_an_unknown_type_is_refused_with_the_known_ones(app: Queue, stranger: Queue) -> None:
    with pytest.raises(UnknownType, match="unknown job type 'nope'; registered types: send, shell"):
        stranger.enqueue("nope", {})
    assert count(app) == 1


def test_an_empty_store_knows_no_types(stranger: Queue) -> None:
    with pytest.raises(UnknownType, match="registered types: none"):
        stranger.enqueue("send", {})


@pytest.mark.parametrize("name", ["", "Send", "a" * 129, "a b", None])
def test_what_cannot_be_a_type_is_refused_as_such(stranger: Queue, name: Any) -> None:
    with pytest.raises(InvalidValue, match="type must be a letter a-z"):
        stranger.enqueue(name, {})


def test_a_type_that_appears_later_is_found(app: Queue, stranger: Queue) -> None:
    with pytest.raises(UnknownType):
        stranger.enqueue("later", {})

    @app.job
    def later() -> None: ...

    later.enqueue()
    assert stranger.enqueue("later", {}).created


def test_a_type_that_has_changed_is_judged_by_its_new_schema(app: Queue, stranger: Queue, url: str) -> None:
    stranger.enqueue("send", {"to": "a"})
    with Queue(url) as newer:

        @newer.job(version=3)
        def send(to: str, cc: str) -> None: ...

        send.enqueue("a", "b")
    job = stranger.enqueue("send", {"to": "a", "cc": "b"}).get()
    assert job.schema_version == 3


def test_producers_of_both_releases_accept_by_name_what_either_release_takes(app: Queue, url: str) -> None:
    """During a roll, also in processes that have a handler of their own for the type."""
    with Queue(url) as newer:

        @newer.job(version=3)
        def send(to: str, cc: str) -> None: ...

        newer.publish()
        assert app.enqueue("send", {"to": "a", "cc": "b"}).get().schema_version == 3
        assert app.draft_sent("send", b'{"to":"a","cc":"b"}', {}).schema_version == 3
        assert newer.enqueue("send", {"to": "a"}).get().schema_version == 2
        before = count(app)
        for queue in (app, newer):
            with pytest.raises(InvalidPayload, match="send: payload"):
                queue.enqueue("send", {"to": "a", "bcc": "b"})
        assert count(app) == before


def test_a_refused_payload_creates_no_store(tmp_path: Path) -> None:
    with Queue(tmp_path / "jobs.db") as queue:

        @queue.job
        def add(a: int) -> None: ...

        with pytest.raises(InvalidPayload):
            queue.enqueue("add", {"a": "one"})
    assert list(tmp_path.iterdir()) == []


def test_what_a_type_says_anew_is_known_after_a_while_also_if_payloads_fit_as_before(
    app: Queue, url: str
) -> None:
    clock = ManualClock()
    with Queue(url, clock=clock) as stranger, Queue(url) as newer:
        stranger.enqueue("send", {"to": "a"})

        @newer.job(version=3, max_attempts=9)
        def send(to: str, when: datetime | None = None) -> None: ...

        newer.publish()
        clock.advance(5)
        job = stranger.enqueue("send", {"to": "a"}).get()
    assert (job.schema_version, job.max_attempts) == (3, 9)


def test_an_older_app_does_not_take_a_newer_type_back(app: Queue, url: str) -> None:
    with Queue(url) as older:

        @older.job(version=1)
        def send(to: str) -> None: ...

        send.enqueue("a")
    assert app.store.types()["send"].schema_version == 2


def test_an_operators_setting_counts_where_the_code_says_nothing_and_an_override_above_it(
    app: Queue, stranger: Queue
) -> None:
    app.store.set_setting("max_attempts", "9")
    app.store.set_setting("send.max_attempts", "1")
    assert stranger.enqueue("send", {"to": "a"}).get().max_attempts == 1
    with Queue(stranger.store.status().url, shell=True) as other:  # noqa: S604 - the switch in question
        assert other.enqueue("shell", {"command": "true"}).get().max_attempts == 9
        assert other.enqueue("send", {"to": "a"}, max_attempts=4).get().max_attempts == 4


# --- shell --------------------------------------------------------------------------------------


def test_shell_commands_are_taken_only_where_they_are_switched_on(app: Queue, stranger: Queue) -> None:
    assert app.enqueue("shell", {"command": "echo hi"}).created
    with pytest.raises(Refused, match="takes no shell commands"):
        stranger.enqueue("shell", {"command": "echo hi"})
