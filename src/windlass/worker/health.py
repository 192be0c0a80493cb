"""A worker's health, its metrics, and the address where both are served."""

from __future__ import annotations

import logging
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from typing import Any, TypeVar

import msgspec

from windlass.errors import StoreUnavailable, must_be
from windlass.loop import pause_after
from windlass.observe.exposition import MEDIA_TYPE, family, render
from windlass.worker.children.process_tree import resident
from windlass.worker.parts import Parts
from windlass.worker.settler import MOST_UNSETTLED

# So long may the store stay away, or a claim take, before somebody should know.
SILENT_SECONDS = 30.0


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """How one worker is; `why` says what is wrong, and is empty if nothing is."""

    ok: bool
    why: str = ""
    # It claims nothing more.
    draining: bool = False
    # Why this process should be replaced, to its supervisor; empty if it need not be.
    restart: str = ""
    worker: str = ""
    # The release of the application, as far as it says.
    app: str = ""
    busy: int = 0
    slots: int = 0
    held: int = 0
    # Since it started.
    done: int = 0
    failed: int = 0
    late: int = 0
    # Outcomes that wait to be written, and seconds since the last beat that the store confirmed.
    unsettled: int = 0
    beat_age: float = 0.0
    # Of its process and those below it, as far as the system tells.
    resident_bytes: int | None = None
    # Ticks that failed since it started, by part: claims, beats and so on.
    ticks_failed: dict[str, int] = {}


def examine(parts: Parts, *, begun: bool) -> Health:
    """How the worker is now; asks nobody, so that nothing can hold it up."""
    why = _trouble(parts) if begun else "starting"
    return Health(
        ok=not why,
        why=why,
        draining=parts.draining,
        restart=parts.leaks.reason,
        worker=parts.membership.id,
        app=parts.app,
        busy=sum(pool.busy for pool in parts.pools),
        slots=sum(pool.slots for pool in parts.pools),
        held=sum(pool.held for pool in parts.pools),
        done=parts.settler.done,
        failed=parts.settler.failed,
        late=parts.settler.late,
        unsettled=len(parts.settler.queue),
        beat_age=round(max(0.0, parts.env.clock.uptime() - parts.membership.sent), 3),
        resident_bytes=resident(parts.membership.place.pid),
        ticks_failed={loop.name: loop.failed for loop in (parts.claimer.loop, *parts.loops)},
    )


def _trouble(parts: Parts) -> str:
    clock = parts.env.clock
    if parts.draining:
        return "draining: it claims nothing more"
    silent = clock.uptime() - parts.membership.sent
    if silent > SILENT_SECONDS:
        return f"the store has not answered for {silent:.0f} s"
    stalled = clock.monotonic() - parts.claimer.ticked
    if stalled > SILENT_SECONDS + parts.claimer.patience:
        return f"not claiming: the claimer has stood still for {stalled:.0f} s"
    if parts.liveness.trouble:
        return parts.liveness.trouble
    if blocked := parts.leaks.blocked():
        return blocked
    if len(parts.settler.queue) > MOST_UNSETTLED:
        return f"not claiming: {len(parts.settler.queue)} outcomes wait to be written"
    if any(pool.held >= pool.slots for pool in parts.pools):
        return "not claiming: every slot of a pool is held by work that does not end"
    return ""


def expose(workers: Sequence[Health]) -> str:
    """The metrics of one worker, or of all that a supervisor has."""
    known = [each for each in workers if each.worker]
    slots = [
        ((each.worker, state), count)
        for each in known
        for state, count in (("all", each.slots), ("busy", each.busy), ("held", each.held))
    ]
    ours = version("windlass")
    resident = [((each.worker,), each.resident_bytes) for each in known if each.resident_bytes is not None]
    trouble = [((each.worker, part), count) for each in known for part, count in each.ticks_failed.items()]
    return render(
        [
            family("windlass_worker_slots", slots),
            family("windlass_worker_healthy", [((each.worker,), int(each.ok)) for each in known]),
            family("windlass_worker_unsettled", [((each.worker,), each.unsettled) for each in known]),
            family("windlass_worker_beat_age_seconds", [((each.worker,), each.beat_age) for each in known]),
            family("windlass_worker_completed_total", [((each.worker,), each.done) for each in known]),
            family("windlass_worker_failed_total", [((each.worker,), each.failed) for each in known]),
            family("windlass_worker_late_total", [((each.worker,), each.late) for each in known]),
            family("windlass_worker_resident_bytes", resident),
            family("windlass_worker_ticks_failed_total", trouble),
            family("windlass_worker_info", [((each.worker, each.app or ours), 1) for each in known]),
        ]
    )


log = logging.getLogger("windlass.worker")

T = TypeVar("T")
_LONGEST_PAUSE = 10.0


class StoreWait:
    """Opens a store that may not be there yet; whoever asks meanwhile hears what is waited for."""

    def __init__(self) -> None:
        self._why = ""

    def await_store(self, opened: Callable[[], T]) -> T:
        """Try until it opens. One line in the log for each new reason; other errors are not waited out."""
        wait, failures = threading.Event().wait, 0
        while True:
            try:
                found = opened()
            except StoreUnavailable as error:
                failures += 1
                if str(error) != self._why:
                    self._why = str(error)
                    log.warning("worker.waits_for_store", extra={"error": self._why})
                wait(pause_after(failures, _LONGEST_PAUSE))
            else:
                if failures:
                    log.info("worker.store_is_there", extra={"tries": failures + 1})
                return found

    def health(self) -> Health:
        """Never well: nothing is claimed."""
        return Health(ok=False, why=f"waits for the store: {self._why}" if self._why else "starting")


_PATHS = frozenset({"/", "/health", "/health/live", "/health/ready"})
_METRICS = "/metrics"
_LOOPBACK = "127.0.0.1"
_MOST_PORTS = 65_535

Answer = Callable[[], tuple[bool, Any]]


def parse_address(text: str) -> tuple[str, int]:
    """HOST:PORT, or a port on the loopback alone."""
    host, _, port = text.rpartition(":")
    if port.isdecimal() and int(port) <= _MOST_PORTS:
        return host.strip("[]") or _LOOPBACK, int(port)
    raise must_be("--probe", text, "PORT or HOST:PORT, such as 127.0.0.1:8081")


class HealthAddress(ThreadingHTTPServer):
    """A small server on a thread of its own; it says what `answer` says, and `exposed` at /metrics."""

    log = logging.getLogger("windlass.probe")
    daemon_threads = True

    def __init__(self, address: tuple[str, int], answer: Answer, exposed: Callable[[], str]) -> None:
        self.answer = answer
        self.exposed = exposed
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        try:
            super().__init__(address, _Asked)
        except OSError as error:
            shown = f"{address[0]}:{address[1]}"
            raise must_be("--probe", shown, f"an address that is free ({error.strerror})") from None
        self.port: int = self.server_address[1]

    def start(self) -> None:
        threading.Thread(target=self.serve_forever, name="windlass-health", daemon=True).start()

    def close(self) -> None:
        self.shutdown()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - as the base class has it
        """Whoever asked did not wait for the answer; a traceback in the log would help nobody."""
        error = sys.exception()
        if not isinstance(error, OSError):
            self.log.error("probe.failed", exc_info=error)


class _Asked(BaseHTTPRequestHandler):
    server: HealthAddress
    # A caller that says nothing is not waited for.
    timeout = 5
    server_version = "windlass"
    sys_version = ""

    def do_GET(self) -> None:
        self._say(body=True)

    def do_HEAD(self) -> None:
        self._say(body=False)

    def log_message(self, *_: object) -> None:
        """Somebody asks every few seconds; nobody wants to read of it."""

    def _say(self, *, body: bool) -> None:
        path = self.path.partition("?")[0]
        if path == _METRICS:
            self._send(200, MEDIA_TYPE, self.server.exposed().encode(), body=body)
            return
        known = path in _PATHS
        ok, document = self.server.answer() if known else (False, {"error": "not found"})
        data = msgspec.json.encode(document)
        self._send(200 if ok else 503 if known else 404, "application/json", data, body=body)

    def _send(self, status: int, media_type: str, data: bytes, *, body: bool) -> None:
        self.send_response(status)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if body:
            self.wfile.write(data)
