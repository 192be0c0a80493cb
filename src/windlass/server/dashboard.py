"""The dashboard's files and its log-in. In the browser it uses the API like any other client."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import partial
from importlib import resources
from importlib.metadata import version
from importlib.resources.abc import Traversable

import msgspec

from windlass.ops.actions import Need
from windlass.server import authentication
from windlass.server.call import Call
from windlass.server.identity import refusal
from windlass.server.routes import Reply, Route

_KINDS = {
    ".html": b"text/html; charset=utf-8",
    ".css": b"text/css; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".svg": b"image/svg+xml",
}
# Nothing but our own files, no script or style within a page, no frames, and no text becomes markup.
_POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    b"form-action 'none'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
    b"trusted-types 'none'"
)


_page = partial(Route, need=Need.NOTHING, body_limit=4 * 1024)


class LoginForm(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The API key to log in with."""

    key: str


async def show_session(call: Call) -> Reply:
    """Who looks, and what they may do."""
    door, locked = call.parts.authentication, call.parts.keyring.needed
    who = await door.known(door.sent(call.scope))
    key = door.sessions.key_of(call.scope) if locked else None
    session = {
        # Whether an API key is needed here at all, and whether the caller came with one that opens the door.
        "locked": locked,
        "known": who is not None,
        "name": None if who is None else who.shown,
        "may": [need for need in Need if who is not None and who.may(need)],
        "tenant": None if who is None else who.tenant,
        # What the page must send along with whatever changes something.
        "token": authentication.token_for(key) if who is not None and key is not None else None,
        "version": version("windlass"),
    }
    return Reply(200, session)


async def log_in(call: Call) -> Reply:
    """Begin a session with an API key."""
    authentication.check_origin(call.scope)
    log_ins, address = call.parts.log_ins, call.address
    log_ins.spend(address)
    key = (await call.body(LoginForm)).key.strip()
    if not key.isascii() or await call.parts.authentication.known(key) is None:
        call.scope[authentication.CLAIMED] = key
        raise refusal(key)
    log_ins.spend(address, -1)
    cookie = call.parts.authentication.sessions.begin(call.scope, key)
    return Reply(200, {"ok": True}, headers={b"set-cookie": cookie})


async def log_out(call: Call) -> Reply:
    """End the session of this browser."""
    authentication.check_origin(call.scope)
    cookie = call.parts.authentication.sessions.end(call.scope)
    return Reply(200, {"ok": True}, headers={b"set-cookie": cookie})


def _files(folder: Traversable, path: str = "") -> Iterator[tuple[str, bytes]]:
    for each in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if each.is_dir():
            yield from _files(each, f"{path}{each.name}/")
        elif any(each.name.endswith(ending) for ending in _KINDS):
            yield path + each.name, each.read_bytes()


def _file(path: str, body: bytes) -> Route:
    """A file of the dashboard, read once; 304 for a browser that has it."""
    mark = b'"%s"' % hashlib.sha256(body).hexdigest()[:16].encode()
    headers = {b"cache-control": b"no-cache", b"etag": mark, b"content-security-policy": _POLICY}
    kind = _KINDS[path[path.rindex(".") :]]

    async def show_file(call: Call) -> Reply:
        """A file of the dashboard."""
        if call.header(b"if-none-match") == mark.decode():
            return Reply(304, b"", headers=headers, media_type=kind)
        return Reply(200, body, headers=headers, media_type=kind)

    where = "/" if path == "index.html" else f"/static/{path}"
    return _page(method="GET", path=where, answer=show_file, summary="A file of the dashboard")


# Apart from the API's: they are no part of its contract.
PAGES = (
    _page(method="GET", path="/session", answer=show_session, summary="Who looks"),
    _page(method="POST", path="/login", answer=log_in, summary="Begin a session"),
    _page(method="POST", path="/logout", answer=log_out, summary="End a session"),
    *(_file(path, body) for path, body in _files(resources.files("windlass.dashboard"))),
)
