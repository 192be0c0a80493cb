"""The way of a request, from its first line to the last byte of the answer."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Mapping
from time import monotonic
from typing import TYPE_CHECKING
from urllib.parse import unquote

import msgspec

from windlass.errors import StoreError, UnknownType, WindlassError
from windlass.observe import names
from windlass.observe.ledger import Ledger
from windlass.ops.actions import Need
from windlass.server import actions, health, leases, operate, problems, produce, waiting
from windlass.server.call import Call, HungUp
from windlass.server.connection import connection_of
from windlass.server.dashboard import PAGES
from windlass.server.forms import read_query
from windlass.server.limits import DENIED, Doing
from windlass.server.openapi import contract
from windlass.server.problems import Problem, ProblemDocument
from windlass.server.routes import ROUTES, Reply, Route
from windlass.store.group_commit import Withdrawn

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send

    from windlass.server.parts import Parts

# Each declares its routes when it is imported.
__all__ = ["ROUTES", "actions", "health", "leases", "operate", "produce", "waiting"]
log = logging.getLogger("windlass.server")
_LONGEST_PATH = 200
_READS = ("GET", "HEAD")
# An answer of these that says that all is not well has not failed.
_PROBES = "/health"
# Requests that put jobs in: what comes of them is counted.
_ENQUEUES = frozenset({"/api/v1/jobs", "/api/v1/jobs/batch"})
# By plain numbers: to look for a member of an enumeration takes ten times as long.
_TOO_MANY, _BROKEN = 429, 500
_RESULTS = {201: names.ACCEPTED, 200: names.EXISTING, _TOO_MANY: names.REFUSED}
# Replaces a slash within a name while the route is looked for; text from outside has none of these.
_SLASH = "\udc2f"
_NAME = re.compile(r"\\{(\w+)\\}")


class App:
    """The ASGI application: finds the route, asks who calls, answers; every refusal is a problem."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        contract()
        by_path: dict[str, dict[str, Route]] = {}
        for route in (*ROUTES, *PAGES):
            by_path.setdefault(route.path, {})[route.method] = route
        # Paths without a name in them, jobs that come in above all, are not searched for.
        self._plain = {path: methods for path, methods in by_path.items() if "{" not in path}
        self._named = [
            (re.compile(_NAME.sub(r"(?P<\1>[^/]+)", re.escape(path))), methods)
            for path, methods in by_path.items()
            if "{" in path
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = monotonic()
        methods, named = self._found(scope["path"], scope["raw_path"])
        call: Call | None = None
        try:
            try:
                call = await self._arrived(methods, named, scope, receive)
                query = read_query(call.route.query, scope["query_string"])
                reply = await call.route.answer(call, **query)
            except (HungUp, Withdrawn):
                return
            except Exception as error:  # noqa: BLE001 # wall: the server outlives a mistake in a handler
                reply = _refused(error, scope, named)
            if methods:
                service = "" if call is None else self.parts.keyring.label(call.identity)
                self._note(methods, scope, reply, began, service)
            if call is not None and reply.stream is None:
                # However slowly the answer is read, its work is done.
                call.let_go()
            connection = connection_of(scope)
            if connection.closed or (reply.stream is None and connection.answer(send, reply)):
                return
            await _send(reply, scope, send)
        finally:
            if call is not None:
                call.let_go()

    def _found(self, path: str, raw: bytes = b"") -> tuple[Mapping[str, Route], dict[str, str]]:
        """What may be done at a path, and what the path names."""
        if b"%2f" in raw.lower():
            # A slash that was sent as part of a name, such as a key, does not split it.
            parts = raw.decode("ascii", "replace").split("/")
            path = "/".join(unquote(part).replace("/", _SLASH) for part in parts)
        if path in self._plain:
            return self._plain[path], {}
        for pattern, methods in self._named:
            if (found := pattern.fullmatch(path)) is not None:
                return methods, found.groupdict()
        return {}, {}

    def _no_route(self, path: str) -> Problem:
        meant = f"/api/v1{path}"
        hint = f"did you mean {meant}?" if self._found(meant)[0] else "/docs lists them"
        return Problem(404, "not-found", f"there is no route {_readable(path)}; {hint}")

    async def _arrived(
        self, methods: Mapping[str, Route], named: dict[str, str], scope: Scope, receive: Receive
    ) -> Call:
        """The request, once it is known who asks and that it may be answered."""
        authentication = self.parts.authentication
        authentication.check(scope)
        if not methods:
            raise self._no_route(scope["path"])
        route = _choose(methods, scope["method"])
        identity = authentication.identify(scope, route)
        if identity is None:
            # Its key may be newer than what we know.
            self.parts.availability.check()
            await authentication.look()
            authentication.check(scope)
            identity = authentication.identify(scope, route, looked=True)
        assert identity is not None  # noqa: S101 - refused, or known by now
        if route.need is not Need.NOTHING:
            connection_of(scope).trust()
            if route.method not in _READS:
                self.parts.availability.check()
        call = Call(scope, receive, route, _checked(named), identity, self.parts)
        if route.need is Need.NOTHING:
            if not route.path.startswith(_PROBES):
                self.parts.strangers.spend(call.address)
                call.begin(Doing.OPEN)
        elif route.takes is None:
            call.begin(Doing.WORKING)
        return call

    def _note(
        self, methods: Mapping[str, Route], scope: Scope, reply: Reply, began: float, service: str
    ) -> None:
        ledger, status = self.parts.flow.ledger, reply.status
        if status in DENIED or status == _TOO_MANY or status >= _BROKEN:
            # By the route's path as it is declared: names within paths are no labels.
            path = next(iter(methods.values())).path
            if not path.startswith(_PROBES):
                ledger.count(f"{names.ANSWERED}{status}.{path}")
            if status in DENIED:
                kind = msgspec.json.decode(reply.body, type=ProblemDocument).type.rpartition(":")[2]
                source = self.parts.authentication.source(scope, status)
                self.parts.denials.note(source, f"{scope['method']} {path}", kind)
        if scope["method"] == "POST" and scope["path"] in _ENQUEUES:
            note_enqueue(ledger, status, monotonic() - began, service)


def note_enqueue(ledger: Ledger, status: int, seconds: float, service: str = "") -> None:
    """Count what came of a request to enqueue, of which service it was, and how long it took."""
    result = _RESULTS.get(status) or (names.BROKEN if status >= _BROKEN else names.INVALID)
    if service:
        ledger.count(names.of_service(service, result))
    ledger.count(result)
    ledger.measure(names.ENQUEUE, seconds)


def _checked(named: dict[str, str]) -> dict[str, str]:
    """What the path names. Nothing of ours has a NUL in its name, and no store would look for it."""
    for name in named.values():
        if "\0" in name:
            raise Problem(404, "not-found", f"there is nothing named {_readable(name)}")
    return {part: name.replace(_SLASH, "/") for part, name in named.items()}


def _choose(methods: Mapping[str, Route], method: str) -> Route:
    route = methods.get("GET" if method == "HEAD" else method)
    if route is None:
        allowed = ", ".join(sorted(methods))
        detail = f"{method} is not allowed; allowed: {allowed}"
        raise Problem(405, "method-not-allowed", detail, headers={b"allow": allowed.encode()})
    return route


def _refused(error: Exception, scope: Scope, named: Mapping[str, str]) -> Reply:
    """The answer to what was refused or failed; of a mistake of ours the caller learns nothing."""
    if isinstance(error, Problem):
        return error.reply()
    if isinstance(error, StoreError):
        log.warning("server.store_failed", extra={"error": str(error)})
        return problems.of_store(error, writes=scope["method"] not in _READS).reply()
    if isinstance(error, UnknownType) and error.job_type in named.values():
        return Problem(404, "unknown-type", str(error)).reply()
    if isinstance(error, WindlassError):
        return problems.of(error).reply()
    log.error("server.failed", extra={"path": scope["path"]}, exc_info=error)
    return Problem(500, "internal", "the server made a mistake; its log has the details").reply()


async def _send(reply: Reply, scope: Scope, send: Send) -> None:
    start: Message = {"type": "http.response.start", "status": reply.status, "headers": reply.all_headers()}
    await send(start)
    if reply.stream is None or scope["method"] == "HEAD":
        await send({"type": "http.response.body", "body": reply.body})
        return
    async with contextlib.aclosing(reply.stream) as stream:
        async for chunk in stream:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


def _readable(path: str) -> str:
    return repr(path if len(path) <= _LONGEST_PATH else path[:_LONGEST_PATH] + "…")
