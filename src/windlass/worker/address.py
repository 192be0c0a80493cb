"""How does somebody outside ask whether all is well? By HTTP, where --probe says: 200, or 503 and why."""

from __future__ import annotations

import logging
import socket
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec

from windlass.errors import must_be
from windlass.observe.exposition import MEDIA_TYPE

log = logging.getLogger("windlass.probe")

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


class HealthAddress:
    """A small server on a thread of its own; it says what `answer` says, and `exposed` at /metrics."""

    def __init__(self, address: tuple[str, int], answer: Answer, exposed: Callable[[], str]) -> None:
        try:
            self._server = _Server(address, answer, exposed)
        except OSError as error:
            shown = f"{address[0]}:{address[1]}"
            raise must_be("--probe", shown, f"an address that is free ({error.strerror})") from None
        self.port: int = self._server.server_address[1]

    def start(self) -> None:
        """Begin to answer."""
        threading.Thread(target=self._server.serve_forever, name="windlass-health", daemon=True).start()

    def close(self) -> None:
        """Answer nobody any more."""
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], answer: Answer, exposed: Callable[[], str]) -> None:
        self.answer = answer
        self.exposed = exposed
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, _Asked)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - as the base class has it
        """Whoever asked did not wait for the answer; a traceback in the log would help nobody."""
        error = sys.exception()
        if not isinstance(error, OSError):
            log.error("probe.failed", exc_info=error)


class _Asked(BaseHTTPRequestHandler):
    server: _Server
    # A caller that says nothing is not waited for.
    timeout = 5
    server_version = "windlass"
    sys_version = ""

    def do_GET(self) -> None:
        """Say how it is."""
        self._say(body=True)

    def do_HEAD(self) -> None:
        """Say it by the status alone."""
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
