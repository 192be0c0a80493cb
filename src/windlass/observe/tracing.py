"""How does a job's way become one trace? By OpenTelemetry, if the application uses it.

Nothing is imported here: a process in which nobody has imported OpenTelemetry has no provider, and pays for a
look into a dictionary. The trace context travels with the job, as W3C's `traceparent`. The spans of a job:

    send TYPE       in the producer, or in whatever it runs
    POST /jobs      in a server, if it came by HTTP
    claim TYPE      in the worker: from asking for jobs to having this one
    process TYPE    while the handler runs it is the current span, also in a child process
    settle TYPE     until the outcome is in the store

Attributes have the names of OpenTelemetry's conventions for messaging, spelled out: its own list of them
is not stable yet.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, cast

import msgspec

from windlass.clock import SystemClock
from windlass.job import Lease, NewJob
from windlass.outcome import Done, Outcome

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, Tracer, TracerProvider

OUTCOME = "windlass.job.outcome"
_ID = "messaging.message.id"
_TYPE = "messaging.destination.name"
_API = "opentelemetry.trace"
# Now, as spans are told.
moment = SystemClock().micros


def on() -> bool:
    """Whether the application has set a provider of traces."""
    return _API in sys.modules and _provider() is not None


def _provider() -> TracerProvider | None:
    api = sys.modules.get(_API)
    # Many import the API and set nothing: its own answer to that takes as long as ten of ours.
    if api is None or getattr(api, "_TRACER_PROVIDER", api) is None:
        return None
    provider: TracerProvider = api.get_tracer_provider()
    nobody = isinstance(provider, (api.ProxyTracerProvider, api.NoOpTracerProvider))
    return None if nobody else provider


@cache
def _tracer_of(provider: TracerProvider) -> Tracer:
    return provider.get_tracer("windlass", version("windlass"))


def _tracer() -> Tracer:
    """The tracer of the provider; callers check `on()` first."""
    return _tracer_of(cast("TracerProvider", _provider()))


# --- the context, as jobs carry it --------------------------------------------------------------


def current() -> str | None:
    """The span that is current here, for a job that is made in it."""
    return _told(sys.modules[_API].get_current_span()) if on() else None


def _told(span: Span) -> str | None:
    context = span.get_span_context()
    if not context.is_valid:
        return None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"


def _context(traceparent: str | None) -> Context:
    """What a job's trace context means here; an empty one for a job that has none."""
    api = sys.modules[_API]
    context = sys.modules["opentelemetry.context"].Context()
    if traceparent is not None:
        _, trace_id, span_id, flags = (int(part, 16) for part in traceparent.split("-")[:4])
        remote = api.SpanContext(trace_id, span_id, is_remote=True, trace_flags=api.TraceFlags(flags))
        context = api.set_span_in_context(api.NonRecordingSpan(remote), context)
    return cast("Context", context)


@contextlib.contextmanager
def under(traceparent: str | None) -> Iterator[None]:
    """Let the span of another process be the current one; for jobs in children."""
    if traceparent is None or not on():
        yield
        return
    attaching = sys.modules["opentelemetry.context"]
    token = attaching.attach(_context(traceparent))
    try:
        yield
    finally:
        attaching.detach(token)


# --- producing ----------------------------------------------------------------------------------


@contextlib.contextmanager
def sending(drafts: Sequence[NewJob]) -> Iterator[Sequence[NewJob]]:
    """A span around storing jobs; they come back with its context, so that whatever runs them belongs to it.

    Drafts that carry a context already are part of that trace. Several of different traces keep theirs.
    """
    api = sys.modules[_API]
    given = {draft.traceparent for draft in drafts}
    [only] = given if len(given) == 1 else (None,)
    types = {draft.type for draft in drafts}
    attributes: dict[str, Any] = _operation("send", "send", types.pop() if len(types) == 1 else None)
    if len(drafts) == 1:
        attributes |= {_ID: drafts[0].id, "messaging.message.body.size": len(drafts[0].payload)}
    else:
        attributes["messaging.batch.message_count"] = len(drafts)
    with _tracer().start_as_current_span(
        _name("send", attributes),
        context=None if only is None else _context(only),
        kind=api.SpanKind.PRODUCER,
        attributes=attributes,
    ) as span:
        told = _told(span)
        yield [
            draft
            if draft.traceparent is not None and only is None
            else msgspec.structs.replace(draft, traceparent=told)
            for draft in drafts
        ]


def carrying(drafts: tuple[NewJob, ...]) -> tuple[NewJob, ...]:
    """Drafts that a handler leaves to be stored with its completion: they belong to its trace."""
    told = current()
    if told is None:
        return drafts
    return tuple(
        draft if draft.traceparent is not None else msgspec.structs.replace(draft, traceparent=told)
        for draft in drafts
    )


@contextlib.contextmanager
def serving(method: str, route: str, traceparent: str | None) -> Iterator[str | None]:
    """A span around a request that makes jobs; its context, for jobs that came without one."""
    if not on():
        yield None
        return
    with _tracer().start_as_current_span(
        f"{method} {route}",
        context=_context(traceparent),
        kind=sys.modules[_API].SpanKind.SERVER,
        attributes={"http.request.method": method, "http.route": route},
    ) as span:
        yield _told(span)


# --- working ------------------------------------------------------------------------------------


class Trace:
    """The spans of one run, from its claim to its settle; made only where somebody has set a provider."""

    __slots__ = ("_about", "_parent", "_span", "_type")

    def __init__(self, lease: Lease, waited: float, app: str) -> None:
        """Claimed just now; the worker had asked for it `waited` seconds ago."""
        job = lease.job
        self._type = job.type
        self._about: dict[str, Any] = {
            _ID: job.id,
            "messaging.client.id": lease.worker,
            "windlass.job.attempt": job.attempts,
            **({"windlass.job.tenant": job.tenant} if job.tenant else {}),
            **({"windlass.app.version": app} if app else {}),
        }
        self._parent = _context(job.traceparent)
        self._span: Span | None = None
        end = moment()
        claim = self._begin("claim", "receive", "CLIENT", end - int(waited * 1e6))
        claim.end(end * 1000)
        if job.traceparent is None:
            # A job that nobody traced before begins a trace of its own.
            self._parent = sys.modules[_API].set_span_in_context(claim)

    def running(self) -> contextlib.AbstractContextManager[Any]:
        """Let the run's span be the current one; it ends with `ended`, since the work may outlive its end."""
        if self._span is None:
            self._span = self._begin("process", "process", "CONSUMER", moment())
        use: Callable[..., contextlib.AbstractContextManager[Any]] = sys.modules[_API].use_span
        return use(self._span, end_on_exit=False, record_exception=False, set_status_on_exception=False)

    @property
    def parent(self) -> str | None:
        """The trace context for a process that runs it."""
        return None if self._span is None else _told(self._span)

    def ended(self, outcome: Outcome | None) -> None:
        """The run has come to its outcome; None: its lease was lost."""
        span = self._span
        if span is None:
            return
        span.set_attribute(OUTCOME, "lost" if outcome is None else _named(outcome))
        error = getattr(outcome, "error", None)
        if error is not None and not isinstance(outcome, Done):
            span.set_attribute("error.type", error.kind or error.reason.value)
            # The message may carry what the payload did; the job's own record has it.
            api = sys.modules[_API]
            span.set_status(api.Status(api.StatusCode.ERROR, error.reason.value))
        span.end()

    def settled(self, began: int, outcome: Outcome) -> None:
        """The outcome is in the store; the writing began at that time, in microseconds."""
        if self._span is not None:
            self._parent = sys.modules[_API].set_span_in_context(self._span)
        span = self._begin("settle", "settle", "CLIENT", began)
        # A job that never started, such as one that is left to another release, has no other span to say it.
        span.set_attribute(OUTCOME, _named(outcome))
        span.end()

    def _begin(self, name: str, kind: str, span_kind: str, at: int) -> Span:
        attributes = _operation(name, kind, self._type) | self._about
        return _tracer().start_span(
            _name(name, attributes),
            context=self._parent,
            kind=getattr(sys.modules[_API].SpanKind, span_kind),
            attributes=attributes,
            start_time=at * 1000,
        )


def _named(outcome: Outcome) -> str:
    return type(outcome).__name__.lower()


def _operation(name: str, kind: str, job_type: str | None) -> dict[str, Any]:
    told: dict[str, Any] = {
        "messaging.system": "windlass",
        "messaging.operation.name": name,
        "messaging.operation.type": kind,
    }
    return told if job_type is None else told | {_TYPE: job_type}


def _name(operation: str, attributes: dict[str, Any]) -> str:
    return " ".join(filter(None, (operation, attributes.get(_TYPE))))
