"""What happens to payloads that another release of the application has enqueued?"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from windlass import Context, InvalidValue, JobState, JobUnsuccessful, Queue
from windlass.ops import Ops
from windlass.testing import Kit, override

Release = Callable[[], Queue]


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A store that outlives the releases of an application."""
    return f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture
def release(url: str) -> Iterator[Callable[[], Queue]]:
    """Releases of one application, each with a queue of its own on the same store."""
    queues: list[Queue] = []

    def new() -> Queue:
        queues.append(Queue(url))
        return queues[-1]

    yield new
    for queue in queues:
        queue.close()


def _kit(queue: Queue, url: str) -> Any:
    return override(queue, url=url)


def _first(queue: Queue) -> Any:
    @queue.job
    def send(name: str) -> str:
        return f"1: {name}"

    return send


def _third(queue: Queue) -> Any:
    @queue.job(version=3)
    def send(ctx: Context, first: str, last: str, copies: int = 1) -> str:
        return f"3: {first} {last} x{copies}, sent as {ctx.job.schema_version}"

    @send.upgrade(from_version=1)
    def _split(payload: dict[str, Any]) -> dict[str, Any]:
        first, _, last = payload["name"].partition(" ")
        return {"first": first, "last": last}

    @send.upgrade(from_version=2)
    def _copies(payload: dict[str, Any]) -> dict[str, Any]:
        return {**payload, "copies": 2}

    return send


def test_an_older_payload_is_upgraded_step_by_step(release: Release, url: str) -> None:
    job = _first(release()).enqueue("Ada Lovelace")
    new = release()
    _third(new)
    with _kit(new, url) as kit:
        kit.drain()
        assert kit.queue.get(job.id).result is not None
    assert job.result() == "3: Ada Lovelace x2, sent as 1"


def test_a_newer_payload_is_left_alone_by_an_older_worker(release: Release, url: str) -> None:
    old, new = release(), release()
    _first(old)
    job = _third(new).enqueue("Ada", "Lovelace")
    with _kit(old, url) as kit:
        assert kit.drain() == []
    assert (job.state, job.get().attempts) == (JobState.PENDING, 0)


def test_a_step_that_fails_ends_the_job_with_the_versions_in_its_story(release: Release, url: str) -> None:
    _first(release()).enqueue("x")
    new = release()

    @new.job(version=2)
    def send(first: str) -> None: ...

    @send.upgrade(from_version=1)
    def _broken(payload: dict[str, Any]) -> dict[str, Any]:
        return {"first": payload["no such field"]}

    with _kit(new, url) as kit:
        [job] = kit.try_drain()
    assert job.error is not None
    assert (job.state, job.error.reason) == (JobState.DEAD, "invalid_payload")
    assert "could not be upgraded from version 1 to 2: KeyError: 'no such field'" in job.error.message


def test_what_a_step_returns_is_validated(release: Release, url: str) -> None:
    _first(release()).enqueue("x")
    new = release()

    @new.job(version=2)
    def send(age: int) -> None: ...

    @send.upgrade(from_version=1)
    def _wrong(payload: dict[str, Any]) -> dict[str, Any]:
        return {"age": payload["name"]}

    with _kit(new, url) as kit, pytest.raises(JobUnsuccessful, match=r"payload\.age must be an integer"):
        kit.drain()


def test_without_steps_an_older_payload_must_fit_as_it_is(release: Release, url: str) -> None:
    _first(release()).enqueue("Ada")
    new = release()

    @new.job(version=2)
    def send(name: str, copies: int = 1) -> str:
        return f"{name} x{copies}"

    with _kit(new, url) as kit:
        [job] = kit.drain()
        assert job.state is JobState.COMPLETED


def test_a_missing_step_is_named_when_the_worker_starts(release: Release) -> None:
    queue = release()

    @queue.job(version=4)
    def send(name: str) -> None: ...

    send.upgrade(from_version=1)(dict)
    send.upgrade(from_version=3)(dict)
    message = r"the upgrades of send .*up to version 4: upgrade\(from_version=2\) is missing"
    with pytest.raises(InvalidValue, match=message), queue.worker():
        pass


def test_older_payloads_that_nobody_upgrades_are_warned_of(
    release: Release, caplog: pytest.LogCaptureFixture
) -> None:
    _first(release()).enqueue("Ada")
    new = release()

    @new.job(version=2)
    def send(first: str) -> None: ...

    with caplog.at_level(logging.WARNING, "windlass.worker"), new.worker(types=["send"]):
        pass
    [record] = [record for record in caplog.records if record.msg == "type.upgrade_missing"]
    assert (vars(record)["type"], vars(record)["from_version"]) == ("send", 1)


@pytest.mark.parametrize("version", [0, 2, 3, True, "1", None])
def test_a_step_begins_at_an_older_version(version: Any) -> None:
    queue = Queue("sqlite:///:memory:")

    @queue.job(version=2)
    def send(name: str) -> None: ...

    with pytest.raises(InvalidValue, match="from_version must be an older version"):
        send.upgrade(from_version=version)(dict)


def test_a_version_has_one_step() -> None:
    @Queue("sqlite:///:memory:").job(version=2)
    def send(name: str) -> None: ...

    send.upgrade(from_version=1)(dict)
    with pytest.raises(InvalidValue, match="given once for send"):
        send.upgrade(from_version=1)(dict)


def test_a_dead_job_of_an_older_version_can_be_replayed(release: Release, url: str) -> None:
    old = release()
    job = _first(old).enqueue("Ada Lovelace")
    old.store.bury(job.id)
    new = release()
    _third(new)
    with _kit(new, url) as kit:
        kit.drain()
        Ops(kit.queue.store).replay(job.id)
        kit.drain()
    assert job.result() == "3: Ada Lovelace x2, sent as 1"


def test_a_payload_reference_reaches_the_handler_and_whoever_looks() -> None:
    queue = Queue("sqlite:///:memory:")
    seen: list[str | None] = []

    @queue.job
    def resize(ctx: Context, width: int = 100) -> None:
        seen.append(ctx.payload_ref)

    with override(queue) as kit:
        by_type = resize.options(payload_ref="s3://bucket/a.png").enqueue(width=50)
        queue.enqueue("resize", {}, payload_ref="s3://bucket/b.png")
        resize.enqueue()
        kit.drain()
        assert by_type.get().payload_ref == "s3://bucket/a.png"
        assert kit.payload(by_type.get()) == {"$payload_ref": "s3://bucket/a.png", "width": 50}
    assert seen == ["s3://bucket/a.png", "s3://bucket/b.png", None]


@pytest.mark.parametrize("reference", ["", "a\nb", 7, "x" * 3000])
def test_a_reference_is_a_short_printable_text(kit: Kit, reference: Any) -> None:
    with pytest.raises(InvalidValue, match="payload_ref must be a printable text of 1 to 2048"):
        kit.queue.enqueue("any", {}, payload_ref=reference)


@pytest.fixture
def kit() -> Iterator[Kit]:
    with override(Queue("sqlite:///:memory:")) as kit:
        yield kit
