"""Does the class of uvicorn that our connections build on still look as we know it?"""

from __future__ import annotations

import inspect
from importlib.metadata import version

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

KNOWN = "0.54"
# What windlass.server.connection overrides, calls or reads.
METHODS = (
    "__init__",
    "connection_made",
    "connection_lost",
    "resume_writing",
    "data_received",
    "on_message_begin",
    "on_headers_complete",
    "on_message_complete",
    "on_response_complete",
    "send_400_response",
    "_unset_keepalive_if_required",
)
ATTRIBUTES = ("app", "cycle", "flow", "loop", "parser", "pipeline", "scope", "transport")
OF_AN_ANSWER = (
    "default_headers",
    "keep_alive",
    "message_event",
    "on_response",
    "response_complete",
    "response_started",
    "scope",
    "waiting_for_100_continue",
)
ADVICE = (
    "windlass.server.connection subclasses uvicorn's HttpToolsProtocol, which is not public: read what "
    "changed there, run tests/server and `make siege`, then move the pin in pyproject.toml and KNOWN here "
    "(decision 018)"
)


def test_uvicorn_is_the_minor_release_that_the_connections_were_written_for() -> None:
    assert version("uvicorn").rpartition(".")[0] == KNOWN, ADVICE


def test_uvicorns_protocol_has_what_the_connections_use() -> None:
    gone = [name for name in METHODS if not callable(getattr(HttpToolsProtocol, name, None))]
    source = inspect.getsource(HttpToolsProtocol)
    gone += [name for name in ATTRIBUTES if f"self.{name}" not in source]
    source = inspect.getsource(RequestResponseCycle)
    gone += [name for name in OF_AN_ANSWER if f"self.{name}" not in source]
    assert not gone, ADVICE
