"""Who can read an encrypted field? The handler alone, and whoever has the key."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from tests.surface.conftest import Terminal
from windlass import InvalidPayload, InvalidValue, JobState, KeyConflict, KeyMissing, Queue
from windlass.job import Job, NewJob
from windlass.ops import Ops
from windlass.payload import Ring
from windlass.store.jobs import Edit, Filter
from windlass.testing import Kit, override

OLD, NEW = (base64.b64encode(os.urandom(32)).decode() for _ in range(2))
SECRET = "the launch code is 1234"


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINDLASS_ENCRYPTION_KEYS", OLD)


@pytest.fixture
def seen() -> list[str]:
    """What the handler was given."""
    return []


@pytest.fixture
def queue(seen: list[str]) -> Queue:
    return _application(seen)


@pytest.fixture
def kit(queue: Queue) -> Iterator[Kit]:
    with override(queue) as kit:
        yield kit


def _application(seen: list[str]) -> Queue:
    queue = Queue("sqlite:///:memory:")

    @queue.job(encrypt=["body"])
    def send(to: str, body: str = "", pin: int = 0) -> None:
        seen.append(body)

    return queue


def test_the_store_never_sees_it_and_the_handler_does(kit: Kit, seen: list[str]) -> None:
    job = kit.queue.enqueue("send", {"to": "a@b.c", "body": SECRET}).get()
    assert SECRET.encode() not in bytes(job.payload)
    assert b'"to":"a@b.c"' in bytes(job.payload)
    kit.drain()
    assert seen == [SECRET]
    kit.assert_enqueued("send", payload_contains={"body": SECRET})


def test_the_first_key_encrypts_and_all_decrypt(
    kit: Kit, seen: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    by_old = kit.queue.enqueue("send", {"to": "a", "body": "old"}).get()
    rotated = _application(seen)
    monkeypatch.setenv("WINDLASS_ENCRYPTION_KEYS", f"{NEW},{OLD}")
    with override(rotated) as after:
        by_new = rotated.enqueue("send", {"to": "a", "body": "new"}).get()
        after.queue.store.enqueue([_as_new(by_old)])
        after.drain()
    assert seen == ["new", "old"]
    assert Ring([NEW]).open({"body": _field(by_new)}, by_new.id) == {"body": "new"}
    with pytest.raises(KeyMissing):
        Ring([OLD]).open({"body": _field(by_new)}, by_new.id)


def test_without_the_key_a_job_waits_for_a_retry_and_is_not_lost(
    kit: Kit, seen: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = kit.queue.enqueue("send", {"to": "a", "body": SECRET})
    monkeypatch.setenv("WINDLASS_ENCRYPTION_KEYS", NEW)
    [now] = kit.try_drain()
    assert (now.state, now.error and now.error.kind) == (JobState.PENDING, "windlass.errors.KeyMissing")
    assert "payload.body is encrypted with the key" in (now.error.message if now.error else "")
    monkeypatch.setenv("WINDLASS_ENCRYPTION_KEYS", f"{NEW},{OLD}")
    with_both = _application(seen)
    with override(with_both) as other:
        with_both.store.enqueue([_as_new(job.get())])
        other.drain()
    assert seen == [SECRET]


def test_a_worker_without_any_key_does_not_start(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WINDLASS_ENCRYPTION_KEYS")
    message = r"encryption_keys .* must be given: the type send encrypts body"
    with pytest.raises(InvalidValue, match=message), queue.worker():
        pass


def test_without_a_key_nothing_is_enqueued_in_the_clear(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WINDLASS_ENCRYPTION_KEYS")
    with pytest.raises(KeyMissing, match="set WINDLASS_ENCRYPTION_KEYS"):
        queue.enqueue("send", {"to": "a", "body": SECRET})
    assert queue.store.find(Filter()).jobs == []


def test_a_producer_without_the_handler_encrypts_too(kit: Kit, seen: list[str]) -> None:
    kit.drain()
    stranger = Queue("sqlite:///:memory:")
    stranger.store.register(list(kit.queue.store.types().values()))
    job = stranger.enqueue("send", {"to": "a", "body": SECRET}).get()
    assert SECRET.encode() not in bytes(job.payload)
    kit.queue.store.enqueue([_as_new(job)])
    kit.drain()
    assert seen == [SECRET]


def test_a_repeated_key_is_known_by_what_was_sent(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    first = kit.queue.enqueue("send", {"to": "a", "body": SECRET}, key="k")
    again = kit.queue.enqueue("send", {"to": "a", "body": SECRET}, key="k")
    assert (again.id, again.created) == (first.id, False)
    with pytest.raises(KeyConflict):
        kit.queue.enqueue("send", {"to": "a", "body": "other"}, key="k")
    # The digest hangs on the oldest key, so that a new one in front changes nothing.
    assert Ring([OLD]).stamp(b"x") == Ring([NEW, OLD]).stamp(b"x") != Ring([NEW]).stamp(b"x")


def test_a_sealed_text_cannot_be_moved_to_another_job_or_field(kit: Kit) -> None:
    one = kit.queue.enqueue("send", {"to": "a", "body": SECRET}).get()
    two = kit.queue.enqueue("send", {"to": "b", "body": "other"})
    kit.queue.store.edit(two.id, Edit(payload=bytes(one.payload)))
    [_, moved] = kit.try_drain()
    assert (moved.state, moved.error and moved.error.reason) == (JobState.DEAD, "invalid_payload")
    assert moved.error is not None
    assert "payload.body cannot be decrypted" in moved.error.message
    with pytest.raises(InvalidPayload):
        Ring([OLD]).open({"pin": _field(one)}, one.id)


def test_nobody_can_pass_off_a_text_as_sealed(kit: Kit) -> None:
    @kit.queue.job
    def keep(data: dict[str, str]) -> None: ...

    with pytest.raises(InvalidPayload, match=r"payload.data must not be an object with \$encrypted alone"):
        keep.enqueue({"$encrypted": "x.y"})
    keep.enqueue({"$encrypted": "x.y", "and": "more"})
    kit.drain()


def test_an_error_does_not_tell_the_secret(kit: Kit) -> None:
    job = kit.queue.enqueue("send", {"to": "a", "body": SECRET})
    odd = Ring([OLD]).seal(b'{"to":"a","body":["' + SECRET.encode() + b'"]}', ["body"], job.id)
    kit.queue.store.edit(job.id, Edit(payload=odd))
    [dead] = kit.try_drain()
    assert dead.error is not None
    assert dead.error.message.endswith("payload.body does not fit; its value is not shown")
    assert SECRET not in repr(dead)


def test_a_dead_job_is_replayed_as_it_is_or_edited(kit: Kit, seen: list[str]) -> None:
    job = kit.queue.enqueue("send", {"to": "a", "body": SECRET})
    ops = Ops(kit.queue.store)
    kit.queue.store.bury(job.id)
    kit.try_drain()
    ops.replay(job.id)
    kit.queue.store.bury(job.id)
    ops.replay(job.id, payload={"to": "right@b.c", "body": "(encrypted)"})
    kit.drain()
    assert seen == [SECRET]
    other = kit.queue.enqueue("send", {"to": "a", "body": SECRET})
    kit.queue.store.bury(other.id)
    ops.replay(other.id, payload={"to": "a", "body": "a new text"})
    assert b"a new text" not in bytes(other.get().payload)
    kit.drain()
    assert seen == [SECRET, "a new text"]


def test_an_ended_job_is_run_again_with_its_secret(kit: Kit, seen: list[str]) -> None:
    old = kit.queue.enqueue("send", {"to": "a", "body": SECRET})
    kit.drain()
    new = Ops(kit.queue.store).rerun(old.id)
    assert SECRET.encode() not in bytes(kit.queue.get(new.id).payload)
    kit.drain()
    assert seen == [SECRET, SECRET]
    assert kit.queue.get(new.id).rerun_of == old.id


def test_the_command_line_shows_that_it_is_encrypted(
    windlass: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WINDLASS_ENCRYPTION_KEYS", OLD)
    windlass.write(
        "post.py",
        "from windlass import Queue\nqueue = Queue()\n"
        "@queue.job(encrypt=['body'])\ndef send(to: str, body: str) -> None: ...\n",
    )
    windlass.ok("enqueue", "--app", "post:queue", "send", f'{{"to": "a", "body": "{SECRET}"}}', "--key", "k")
    windlass.ok("bury", "k", "--yes")
    windlass.ok("replay", "k", "--payload", '{"to": "b", "body": "(encrypted)"}')
    for words in (["show", "k"], ["show", "k", "--json"], ["list", "--json"], ["config", "get"]):
        said = windlass.ok(*words).out
        assert SECRET not in said
        assert "$encrypted" not in said
        assert OLD not in said
    assert windlass.ok("show", "k", "--json").json["payload"] == {"to": "b", "body": "(encrypted)"}
    assert "1 key, not shown" in windlass.ok("config", "get").out


@pytest.mark.parametrize("fields", [["nope"], "body", ["to", "nope"]])
def test_only_parameters_can_be_encrypted(fields: Any) -> None:
    def send(to: str, body: str) -> None: ...

    with pytest.raises(InvalidValue, match="encrypt of handler send must be a list of"):
        Queue("sqlite:///:memory:").job(encrypt=fields)(send)


@pytest.mark.parametrize("key", ["short", base64.b64encode(b"x" * 16).decode(), "%%%"])
def test_a_key_is_32_bytes_and_never_shown(key: str) -> None:
    with pytest.raises(InvalidValue, match="32 random bytes in base64") as caught:
        Ring([key])
    assert key not in str(caught.value)


def _field(job: Job) -> Any:
    return msgspec.json.decode(job.payload)["body"]


def _as_new(job: Job) -> NewJob:
    """The same job for another store: what is sealed belongs to its id."""
    return NewJob(id=job.id, type=job.type, payload=bytes(job.payload))


def test_a_waiting_job_is_never_given_what_was_encrypted_for_another(kit: Kit, seen: list[str]) -> None:
    kit.queue.enqueue("send", {"to": "a@b.c", "body": SECRET}, unique="mail")
    with pytest.raises(InvalidValue, match=r"on_unique must be skip or error for jobs of type send"):
        kit.queue.enqueue("send", {"to": "a@b.c", "body": "other"}, unique="mail", on_unique="replace")
    kit.drain()
    assert seen == [SECRET]
