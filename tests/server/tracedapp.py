"""An application that traces: each of its processes adds its spans to the file that TRACE_FILE names."""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from opentelemetry import propagate, trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

from tests.waiting import PATIENCE
from windlass import Queue


class FileExporter(SpanExporter):
    """A line a span, whole: many processes may write."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Add the spans to the file."""
        with Path(os.environ["TRACE_FILE"]).open("a") as file:
            for span in spans:
                told = json.loads(span.to_json())
                file.write(json.dumps({**told, "pid": os.getpid()}) + "\n")
        return SpanExportResult.SUCCESS


if "TRACE_FILE" in os.environ:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(FileExporter()))
    trace.set_tracer_provider(provider)

tracer = trace.get_tracer("the application")
queue = Queue()


def call_out(address: str) -> None:
    """An outgoing call, as an instrumented HTTP client makes it."""
    headers: dict[str, str] = {}
    with tracer.start_as_current_span("GET /health", kind=trace.SpanKind.CLIENT):
        propagate.inject(headers)
        assert headers["traceparent"]
        request = urllib.request.Request(address, headers=headers)  # noqa: S310 - our own address
        with urllib.request.urlopen(request, timeout=120) as answer:  # noqa: S310
            answer.read()


@queue.job
def charge(address: str) -> None:
    """On a thread."""
    call_out(address)


@queue.job(executor="process")
def render(address: str) -> None:
    """In a child process."""
    call_out(address)


@queue.job(executor="process")
async def render_async(address: str) -> None:
    """On the loop of a child process."""
    call_out(address)


if __name__ == "__main__":
    import sys

    api, *types = sys.argv[1:]
    with Queue(api) as remote, tracer.start_as_current_span("checkout"):
        for job in [remote.enqueue(name, {"address": f"{api}/health"}) for name in types]:
            job.wait(PATIENCE)
