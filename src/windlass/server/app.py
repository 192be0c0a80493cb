"""What happens to a request, from its first line to the last byte of the answer?"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping, Sequence
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING
from urllib.parse import unquote

import msgspec
from starlette.routing import Route as Path
from starlette.routing import Router

from windlass.errors import StoreError, WindlassError
from windlass.observe import tracing
from windlass.server import problems
from windlass.server.call import Call, HungUp
from windlass.server.dashboard import ROUTES as PAGES
from windlass.server.health import ROUTES as HEALTH
from windlass.server.identity import Need
from windlass.server.limits import DENIED, Doing
from windlass.server.observing import ENQUEUES, is_refusal, note_enqueue, note_refusal
from windlass.server.openapi import contract
from windlass.server.problems import Problem, ProblemDocument
from windlass.server.reply import Reply
from windlass.server.table import ROUTES
from windlass.server.wire import exchange
from windlass.store.group_commit import Withdrawn

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send

    from windlass.server.parts import Parts
    from windlass.server.routes import Route

log = logging.getLogger("windlass.server")


class App:
    """The ASGI application: finds the route, asks who calls, answers; every refusal is a problem."""

    def __init__(
        self, parts: Parts, routes: Sequence[Route] = ROUTES, pages: Sequence[Route] = PAGES
    ) -> None:
        self.parts = parts
        parts.contract = contract(routes)
        by_path: dict[str, dict[str, Route]] = {}
        for route in (*routes, *pages):
            by_path.setdefault(route.path, {})[route.method] = route
        # What has no name in its path, jobs that come in above all, need not be searched for.
        self._plain = {path: methods for path, methods in by_path.items() if "{" not in path}
        self._router = Router(
            [Path(path, _Resource(self, by_path[path])) for path in by_path if "{" in path],
            redirect_slashes=False,
            default=self._nothing_here,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One connection's request."""
        if scope["type"] != "http":
            return
        if b"%2f" in scope["raw_path"].lower():
            # A copy: whoever logs the request has no use for our mark.
            scope = {**scope, "path": _path_with_slashes(scope["raw_path"])}
        methods = self._plain.get(scope["path"])
        if methods is None:
            await self._router(scope, receive, send)
        else:
            await self.answer(methods, scope, receive, send)

    async def answer(self, methods: Mapping[str, Route], scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request whose path is known."""
        began = monotonic()
        call: Call | None = None
        try:
            try:
                call = await self._arrived(methods, scope, receive)
                reply = await call.route.answer(call)
            except (HungUp, Withdrawn):
                return
            except Exception as error:  # noqa: BLE001 # wall: the server outlives a mistake in a handler
                reply = _refused(error, scope)
            service = "" if call is None else self.parts.keyring.label(call.identity)
            self._note(methods, scope, reply, began, service)
            if call is not None and reply.stream is None:
                # However slowly the answer is read, its work is done.
                call.let_go()
            here = exchange(scope)
            if here.ready and reply.stream is None:
                here.answer(reply, whole=scope["method"] != "HEAD")
            else:
                await _send(reply, scope, send)
        finally:
            if call is not None:
                call.let_go()

    async def _arrived(self, methods: Mapping[str, Route], scope: Scope, receive: Receive) -> Call:
        """The request, once it is known who asks."""
        call = self._call(methods, scope, receive)
        if call is None:
            self.parts.availability.check()
            await self.parts.door.look()
            call = self._call(methods, scope, receive, looked=True)
        assert call is not None  # noqa: S101 - refused, or known by now
        return call

    def at_once(self, scope: Scope) -> bool:
        """Take a request that is here as a whole, if it is one that needs no task to wait for its answer."""
        methods = self._plain.get(scope["path"])
        route = None if methods is None else methods.get(scope["method"])
        if methods is None or route is None or route.at_once is None or tracing.on():
            return False
        if b"%" in scope["raw_path"]:
            # A slash that was sent as part of a name is none of the path.
            return False
        began = monotonic()
        call: Call | None = None
        try:
            call = self._call(methods, scope, _nothing_more)
            if call is None:
                return False
            route.at_once(call, partial(self._answered, methods, scope, began, call))
        except Exception as error:  # noqa: BLE001 # wall: the server outlives a mistake in a handler
            self._answered(methods, scope, began, call, error)
        return True

    def _answered(
        self,
        methods: Mapping[str, Route],
        scope: Scope,
        began: float,
        call: Call | None,
        reply: Reply | Exception,
    ) -> None:
        """What was taken at once has its answer, or was refused."""
        service = ""
        if call is not None:
            call.let_go()
            service = self.parts.keyring.label(call.identity)
        if isinstance(reply, Withdrawn):
            # The caller hung up, and nothing was stored.
            return
        if not isinstance(reply, Reply):
            reply = _refused(reply, scope)
        self._note(methods, scope, reply, began, service)
        exchange(scope).answer(reply, whole=True)

    def _note(
        self, methods: Mapping[str, Route], scope: Scope, reply: Reply, began: float, service: str
    ) -> None:
        ledger = self.parts.flow.ledger
        if is_refusal(reply.status):
            path = next(iter(methods.values())).path
            note_refusal(ledger, reply.status, path)
            if reply.status in DENIED:
                self.parts.denials.note(
                    self.parts.door.source(scope, reply.status), f"{scope['method']} {path}", _name_of(reply)
                )
        if scope["method"] == "POST" and scope["path"] in ENQUEUES:
            note_enqueue(ledger, reply.status, monotonic() - began, service)

    def _call(
        self, methods: Mapping[str, Route], scope: Scope, receive: Receive, *, looked: bool = False
    ) -> Call | None:
        """The request, if it may be answered; None if it has a key that may be new."""
        self.parts.door.check(scope)
        route = _choose(methods, scope["method"])
        identity = self.parts.door.identify(scope, route, looked=looked)
        if identity is None:
            return None
        if route.need is not Need.NOTHING:
            exchange(scope).trust()
            if route.method not in _READS:
                self.parts.availability.check()
        call = Call(scope, receive, route, _names(scope), identity, self.parts)
        if not route.query and scope["query_string"]:
            call.query  # noqa: B018 - refuses what the route does not know
        if route.need is Need.NOTHING:
            if route not in HEALTH:
                self.parts.strangers.spend(call.address)
                call.begin(Doing.OPEN)
        elif route.takes is None:
            call.begin(Doing.WORKING)
        return call

    async def _nothing_here(self, scope: Scope, _: Receive, send: Send) -> None:
        problem = Problem(404, "not-found", f"there is no route {_readable(scope['path'])}; /docs lists them")
        try:
            self.parts.door.check(scope)
        except Problem as refused:
            problem = refused
        await _send(problem.reply(), scope, send)


class _Resource:
    """A path, with what may be done there. An object, so that the router hands on any method."""

    def __init__(self, app: App, methods: Mapping[str, Route]) -> None:
        self._app = app
        self._methods = methods

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app.answer(self._methods, scope, receive, send)


def _names(scope: Scope) -> dict[str, str]:
    """What the path names. Nothing of ours has a NUL in its name, and no store would look for it."""
    found: dict[str, str] = scope.get("path_params", {})
    for name in found.values():
        if "\0" in name:
            raise Problem(404, "not-found", f"there is nothing named {_readable(name)}")
    return {part: name.replace(_SLASH, "/") for part, name in found.items()}


def _path_with_slashes(raw: bytes) -> str:
    """The path in which a slash that was sent as part of a name, such as a key, does not part it."""
    return "/".join(unquote(part).replace("/", _SLASH) for part in raw.decode("ascii", "replace").split("/"))


def _choose(methods: Mapping[str, Route], method: str) -> Route:
    route = methods.get("GET" if method == "HEAD" else method)
    if route is None:
        allowed = ", ".join(sorted(methods))
        headers = {b"allow": allowed.encode()}
        raise Problem(405, "method-not-allowed", f"method must be {allowed}, got {method}", headers=headers)
    return route


def _refused(error: Exception, scope: Scope) -> Reply:
    """What is answered to what was refused, or failed: of a mistake of ours the caller learns nothing."""
    if isinstance(error, Problem):
        return error.reply()
    if isinstance(error, StoreError):
        log.warning("server.store_failed", extra={"error": str(error)})
        return problems.of_store(error, writes=scope["method"] not in _READS).reply()
    if isinstance(error, WindlassError):
        return problems.of(error).reply()
    log.error("server.failed", extra={"path": scope["path"]}, exc_info=error)
    return Problem(500, "internal", "the server made a mistake; its log tells which").reply()


def _name_of(reply: Reply) -> str:
    """What kind of refusal an answer tells of."""
    return msgspec.json.decode(reply.body, type=ProblemDocument).type.rpartition(":")[2]


async def _nothing_more() -> Message:
    raise RuntimeError("all of it was here")


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


_LONGEST_PATH = 200
_READS = ("GET", "HEAD")
# Stands for a slash within a name while the route is looked for; text from outside has none of these.
_SLASH = "\udc2f"
