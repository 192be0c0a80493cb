"""Is a job's way one trace? In one process, with OpenTelemetry's own SDK and its spans kept in memory."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, Literal

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.waiting import PATIENCE, until
from windlass import Context, FatalError, Queue
from windlass.observe import tracing
from windlass.store.jobs import Filter

CALLERS = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


class Spans:
    """What was recorded."""

    def __init__(self, provider: TracerProvider, exporter: InMemorySpanExporter) -> None:
        self.tracer = provider.get_tracer("the application")
        self._exporter = exporter

    def __getitem__(self, name: str) -> ReadableSpan:
        [found] = [span for span in self._exporter.get_finished_spans() if span.name == name]
        return found

    def names(self) -> list[str]:
        return sorted(span.name for span in self._exporter.get_finished_spans())

    def traces(self) -> set[int]:
        return {_context(span).trace_id for span in self._exporter.get_finished_spans()}

    def told(self) -> str:
        """All that they say."""
        return "".join(span.to_json() for span in self._exporter.get_finished_spans())

    def parent(self, name: str) -> str | None:
        """The name of a span's parent; None for a root, or one that is somebody else's."""
        above = self[name].parent
        names = {_context(span).span_id: span.name for span in self._exporter.get_finished_spans()}
        return None if above is None else names.get(above.span_id)


def _context(span: ReadableSpan) -> trace.SpanContext:
    context: trace.SpanContext | None = span.context
    assert context is not None
    return context


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Spans]:
    """A provider for this test alone: the global one can be set but once."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(tracing, "_provider", lambda: provider)
    yield Spans(provider, exporter)
    provider.shutdown()


@pytest.fixture
def queue(url: str) -> Iterator[Queue]:
    with Queue(url, version="shop 7") as queue:
        yield queue


def test_enqueue_claim_run_and_settle_are_one_trace(queue: Queue, spans: Spans) -> None:
    @queue.job
    def send(to: str) -> None:
        with spans.tracer.start_as_current_span(f"mail to {to}"):
            pass

    with queue.worker():
        with spans.tracer.start_as_current_span("request"):
            job = send.enqueue("a@b.c")
        done = job.wait(PATIENCE)
    assert spans.names() == [
        "claim send",
        "mail to a@b.c",
        "process send",
        "request",
        "send send",
        "settle send",
    ]
    parents = {name: spans.parent(name) for name in spans.names()}
    assert parents == {
        "request": None,
        "send send": "request",
        "claim send": "send send",
        "process send": "send send",
        "mail to a@b.c": "process send",
        "settle send": "process send",
    }
    [trace_id] = spans.traces()
    assert done.trace == f"{trace_id:032x}"


def test_spans_say_what_the_conventions_ask_for(queue: Queue, spans: Spans) -> None:
    @queue.job
    def send(to: str) -> None: ...

    with queue.worker() as worker:
        job = send.options(tenant="acme").enqueue("a@b.c")
        job.wait(PATIENCE)
        name = worker.id
    sent, ran = spans["send send"], spans["process send"]
    assert (sent.kind, ran.kind) == (trace.SpanKind.PRODUCER, trace.SpanKind.CONSUMER)
    assert dict(sent.attributes or {}) == {
        "messaging.system": "windlass",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "send",
        "messaging.message.id": job.id,
        "messaging.message.body.size": len('{"to":"a@b.c"}'),
    }
    assert dict(ran.attributes or {}) == {
        "messaging.system": "windlass",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "send",
        "messaging.message.id": job.id,
        "messaging.client.id": name,
        "windlass.job.attempt": 1,
        "windlass.job.outcome": "done",
        "windlass.job.tenant": "acme",
        "windlass.app.version": "shop 7",
    }


def test_a_failure_marks_its_span_and_tells_no_message(queue: Queue, spans: Spans) -> None:
    @queue.job
    def send(to: str) -> None:
        raise FatalError(f"no such mailbox: {to}")

    with queue.worker():
        send.enqueue("secret@b.c").wait(PATIENCE)
    ran = spans["process send"]
    assert ran.status.status_code is trace.StatusCode.ERROR
    assert (ran.attributes or {})["error.type"] == "windlass.errors.FatalError"
    assert (ran.attributes or {})["windlass.job.outcome"] == "dead"
    assert "secret" not in spans.told()


def test_coroutines_have_their_own_current_span(queue: Queue, spans: Spans) -> None:
    seen: dict[str, str | None] = {}

    @queue.job
    async def send(to: str) -> None:
        seen[to] = tracing.current()

    with queue.worker():
        jobs = [send.enqueue(to) for to in ("a", "b", "c")]
        for job in jobs:
            job.wait(PATIENCE)
    assert len(set(seen.values())) == 3
    for job, to in zip(jobs, ("a", "b", "c"), strict=True):
        assert (seen[to] or "").split("-")[1] == job.get().trace


def test_a_job_that_a_handler_leaves_behind_belongs_to_its_trace(queue: Queue, spans: Spans) -> None:
    @queue.job
    def second() -> None: ...

    @queue.job
    def first(ctx: Context) -> None:
        ctx.enqueue(second.draft())

    with queue.worker():
        job = first.enqueue()
        job.wait(PATIENCE)
        [after] = [each for each in _until_all_ended(queue) if each.type == "second"]
    assert after.trace == job.get().trace
    assert spans.parent("process second") == "process first"


def test_a_trace_that_came_from_elsewhere_goes_on(queue: Queue, spans: Spans) -> None:
    @queue.job
    def send(to: str) -> None: ...

    with queue.worker():
        job = send.options(traceparent=CALLERS).enqueue("a@b.c")
        job.wait(PATIENCE)
    assert spans.traces() == {int(CALLERS.split("-")[1], 16)}
    above = spans["send send"].parent
    assert above is not None
    assert f"{above.span_id:016x}" == CALLERS.split("-")[2]


def test_a_job_of_a_producer_that_traces_nothing_begins_a_trace_of_its_own(
    queue: Queue, spans: Spans, monkeypatch: pytest.MonkeyPatch
) -> None:
    @queue.job
    def send(to: str) -> None: ...

    with monkeypatch.context() as patch:
        patch.setattr(tracing, "_provider", lambda: None)
        job = send.enqueue("a@b.c")
    with queue.worker():
        job.wait(PATIENCE)
    assert spans.names() == ["claim send", "process send", "settle send"]
    assert spans.parent("process send") == "claim send"
    assert len(spans.traces()) == 1


def test_a_batch_is_one_span_and_its_jobs_share_it(queue: Queue, spans: Spans) -> None:
    @queue.job
    def send(to: str) -> None: ...

    handles = queue.enqueue_many(send.draft(f"{number}@b.c") for number in range(3))
    assert len({handle.get().traceparent for handle in handles}) == 1
    assert (spans["send send"].attributes or {})["messaging.batch.message_count"] == 3


# --- without a provider -------------------------------------------------------------------------


def test_without_a_provider_nothing_is_recorded_and_nothing_imported(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not tracing.on(), "opentelemetry's API alone records nothing"
    monkeypatch.delitem(sys.modules, "opentelemetry.trace")
    assert not tracing.on()
    assert tracing.current() is None
    made: list[Any] = []
    monkeypatch.setattr(tracing, "Trace", lambda *_: made.append(1))

    @queue.job
    def send(to: str) -> None: ...

    with queue.worker():
        job = send.enqueue("a@b.c")
        assert job.wait(PATIENCE).traceparent is None
    assert made == []
    assert "opentelemetry.trace" not in sys.modules


def _until_all_ended(queue: Queue) -> list[Any]:
    jobs = queue.store.find(Filter()).jobs
    return [queue.wait(job.id, PATIENCE) for job in jobs]


@pytest.mark.parametrize("executor", ["thread", "process"])
def test_the_trace_of_a_job_that_is_left_to_another_release_says_so(
    queue: Queue, spans: Spans, executor: Literal["thread", "process"]
) -> None:
    @queue.job(name="work")
    def new(a: int, b: int = 0) -> None:
        """What the producer had."""

    job = new.enqueue(1, b=1)
    with Queue(queue.store.status().url) as older:
        older.job(name="work", executor=executor)(only_a)
        with older.worker():
            until(lambda: job.get().unread, "the worker leaves it")
    assert spans.names() == ["claim work", "send work", "settle work"]
    assert (spans["settle work"].attributes or {})[tracing.OUTCOME] == "left"
    assert spans["settle work"].status.is_unset


def only_a(a: int) -> None:
    """It does not know b."""
