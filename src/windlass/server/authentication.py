"""Who is calling: trusted proxies, the dashboard's session cookie, and API keys.

Without API keys only programs on this machine are served. The cookie holds the API key: scripts cannot read
it, it is sent to this site only, and it ends with the browser's session. Revoking the key ends it everywhere.
A request by cookie that changes something must also carry a token that only our own page can read, and must
name our own origin.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from time import monotonic
from typing import TYPE_CHECKING

from windlass.ops.actions import Need
from windlass.server.identity import LOCAL, Identity, refusal, roles_for
from windlass.server.limits import Source, read_address
from windlass.server.problems import Problem

if TYPE_CHECKING:
    from starlette.types import Scope

    from windlass.server.identity import Keyring
    from windlass.server.routes import Route

_BETWEEN_LOOKS = 0.1
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
NOWHERE = "unknown"
# What proxies add. A program of this machine that speaks with the server itself sends none of them.
FORWARDED = frozenset(
    b"forwarded via x-real-ip x-client-ip x-cluster-client-ip x-envoy-external-address "
    b"x-original-forwarded-for true-client-ip cf-connecting-ip fastly-client-ip fly-client-ip".split()
)
_PREFIX = b"x-forwarded-"
_HOPS = b"x-forwarded-for"


class Proxies:
    """The proxies whose word is taken for where a request comes from."""

    def __init__(self, trusted: Sequence[str] = ()) -> None:
        self._networks = [ipaddress.ip_network(each, strict=False) for each in trusted]

    def trusts(self, scope: Scope) -> bool:
        return self._is_trusted(peer(scope))

    def address(self, scope: Scope) -> str:
        """The client's address: the last one in X-Forwarded-For that no trusted proxy has."""
        found = peer(scope)
        hops = b",".join(value for name, value in scope["headers"] if name == _HOPS).decode("latin-1")
        for hop in reversed(hops.split(",")):
            address = _address(hop) if self._is_trusted(found) else None
            if address is None:
                break
            found = address
        return found

    def _is_trusted(self, address: str) -> bool:
        if not self._networks:
            return False
        found = read_address(address)
        return found is not None and any(found in network for network in self._networks)


def peer(scope: Scope) -> str:
    """Who is at the other end of the connection."""
    client = scope.get("client")
    return client[0] if client else NOWHERE


def forwarded(scope: Scope) -> str | None:
    """The first header that a proxy must have added."""
    names = (name for name, _ in scope["headers"] if name in FORWARDED or name.startswith(_PREFIX))
    return next((name.decode() for name in names), None)


def _address(hop: str) -> str | None:
    """An address of X-Forwarded-For, which may have a port or the brackets of IPv6."""
    text = hop.strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    found = read_address(text)
    return None if found is None else str(found)


_SAFE = frozenset({"GET", "HEAD"})
_NAME = "windlass"
# A name that browsers accept over HTTPS only, and only for this very host.
_SECURE_NAME = "__Host-windlass"
TOKEN = b"x-windlass-token"
# Where a request keeps the key of a log-in that failed.
CLAIMED = "windlass.claimed"


class Sessions:
    """The dashboard's sessions: a cookie that holds the API key."""

    def __init__(self, proxies: Proxies) -> None:
        self._proxies = proxies

    def key_of(self, scope: Scope) -> str | None:
        """The API key in a request's cookie, if there is one and the request may act by it."""
        key = self.cookie(scope)
        if key is not None and scope["method"] not in _SAFE:
            check_origin(scope)
            # In bytes: a text that is not ASCII cannot be compared so.
            if not hmac.compare_digest((_header(scope, TOKEN) or "").encode(), token_for(key).encode()):
                detail = f"a request by cookie must carry the header {TOKEN.decode()}; reload the page"
                raise Problem(403, "not-our-page", detail)
        return key

    def begin(self, scope: Scope, key: str) -> bytes:
        more = "; Secure" if self._is_secure(scope) else ""
        return f"{self._name(scope)}={key}; Path=/; HttpOnly; SameSite=Strict{more}".encode()

    def end(self, scope: Scope) -> bytes:
        return self.begin(scope, "") + b"; Max-Age=0"

    def cookie(self, scope: Scope) -> str | None:
        try:
            held = SimpleCookie(_header(scope, b"cookie") or "").get(self._name(scope))
        except CookieError:
            return None
        return held.value or None if held is not None else None

    def _is_secure(self, scope: Scope) -> bool:
        """Whether the browser speaks HTTPS, with us or with a proxy that we trust."""
        if scope["scheme"] == "https":
            return True
        return _header(scope, b"x-forwarded-proto") == "https" and self._proxies.trusts(scope)

    def _name(self, scope: Scope) -> str:
        """The cookie's name. Browsers send cookies to every port of a host, and each may be a server."""
        port = (_header(scope, b"host") or "").rpartition(":")[2]
        name = _SECURE_NAME if self._is_secure(scope) else _NAME
        return f"{name}-{port}" if port.isdecimal() else name


def token_for(key: str) -> str:
    """What the page sends with whatever changes something; it reveals nothing about the key."""
    return hmac.new(key.encode(), b"windlass dashboard", hashlib.sha256).hexdigest()


def check_origin(scope: Scope) -> None:
    """Refuse what the page of another site sends."""
    origin, host = _header(scope, b"origin"), _header(scope, b"host")
    if origin is None or host is None or origin.partition("://")[2].lower() != host.lower():
        raise Problem(403, "foreign-origin", f"requests of other sites ({origin!r}) are not taken")


def _header(scope: Scope, name: bytes) -> str | None:
    found = [value for key, value in scope["headers"] if key == name]
    return found[0].decode("latin-1") if found else None


@dataclass(eq=False)
class Authentication:
    """Looks at each request before anything else does."""

    keyring: Keyring
    read: Callable[[], Awaitable[None]]
    proxies: Proxies
    # Only programs on this machine may call without a key; else any caller may.
    loopback: bool
    hosts: Sequence[str] = ()

    def __post_init__(self) -> None:
        self.sessions = Sessions(self.proxies)
        self._looked = 0.0
        self._next_look: asyncio.Future[None] | None = None
        # A page whose own name is resolved to this machine does not know these.
        own = () if self.loopback else (socket.gethostname().lower(), socket.getfqdn().lower())
        self._hosts = frozenset((*_LOOPBACK_NAMES, *own, *(each.lower() for each in self.hosts)))

    def check(self, scope: Scope) -> None:
        """Refuse what a web page could send to a server that asks for no key.

        A page of another site names itself as Origin; one that had its own name resolved to this machine
        names itself as Host. What a proxy sends may come from anywhere.
        """
        if self.keyring.needed:
            return
        host = origin = ""
        for name, value in scope["headers"]:
            if name == b"host":
                # Two of them are one too many, whatever the second one says.
                host += value.decode("latin-1").lower()
            elif name == b"origin":
                origin = value.decode("latin-1").lower()
        name, colon, port = host.rpartition(":")
        if not self._allows(name if colon and port.isdecimal() else host):
            names = ", ".join(sorted(self._hosts))
            allowed = f"one of {names}" if self.loopback else f"an IP address or one of {names}"
            detail = f"Host must be {allowed}, got {host!r}; --allowed-host adds a name"
            raise Problem(421, "foreign-host", detail)
        if self.loopback and (header := forwarded(scope)) and not self.proxies.trusts(scope):
            detail = (
                f"without API keys only programs of this machine are served, and {header} says that a proxy "
                "forwards for another machine: create a key, or name the proxy with --trusted-proxy"
            )
            raise Problem(403, "forwarded", detail)
        if origin and origin.partition("://")[2] != host:
            raise Problem(403, "foreign-origin", f"requests of other sites ({origin!r}) are not taken")

    def _allows(self, name: str) -> bool:
        if name in self._hosts:
            return True
        found = read_address(name[1:-1] if name.startswith("[") and name.endswith("]") else name)
        return found is not None and (found.is_loopback or not self.loopback)

    async def look(self) -> None:
        """Read the keys again; all callers with an unknown key share one read."""
        if self._next_look is None:
            self._next_look = asyncio.ensure_future(self._look_once())
        await asyncio.shield(self._next_look)

    async def _look_once(self) -> None:
        await asyncio.sleep(max(0.0, self._looked + _BETWEEN_LOOKS - monotonic()))
        # Who comes from now on may have a key that this look does not see yet.
        self._next_look = None
        self._looked = monotonic()
        await self.read()

    def sent(self, scope: Scope) -> str | None:
        """The key that came with a request: in its header or, where keys are needed, in a cookie."""
        header = _bearer(scope)
        return self.sessions.key_of(scope) if header is None and self.keyring.needed else header

    def source(self, scope: Scope, status: int) -> Source:
        """Where a request that was refused came from, and with which key."""
        address = self.proxies.address(scope)
        header = _bearer(scope)
        sent = scope.get(CLAIMED) or (self.sessions.cookie(scope) if header is None else header)
        known = self.keyring.known(sent) if sent else None
        if known is None:
            return Source(status, address, key=self.keyring.id_of(sent))
        return Source(status, address, known.recorded)

    def knows(self, scope: Scope) -> bool:
        """Whether the caller's key is still valid, as of the last read."""
        return self.keyring.known(self.sent(scope)) is not None

    async def known(self, key: str | None) -> Identity | None:
        """Who comes with an API key; it may be newer than the last read."""
        identity = self.keyring.known(key)
        if identity is None and self.keyring.may_be_new(key):
            await self.look()
            identity = self.keyring.known(key)
        return identity

    def identify(self, scope: Scope, route: Route, *, looked: bool = False) -> Identity | None:
        """Who calls, if they may do what the route needs; None if their key may be newer than we know."""
        if route.need is Need.NOTHING:
            return LOCAL
        sent = self.sent(scope)
        identity = self.keyring.known(sent)
        if identity is None:
            if looked or not self.keyring.may_be_new(sent):
                raise refusal(sent)
            return None
        _check_rights(identity, route)
        return identity


def _check_rights(identity: Identity, route: Route) -> None:
    if not identity.may(route.need):
        needed, roles = " or ".join(roles_for(route.need)), ", ".join(sorted(identity.roles))
        raise Problem(403, "not-allowed", f"this needs the role {needed}; this key has: {roles}")
    if route.whole and identity.tenant is not None:
        detail = f"this is about all tenants, and the key is bound to {identity.tenant!r}"
        raise Problem(403, "not-allowed", detail)


def _bearer(scope: Scope) -> str | None:
    """The key in a request's header."""
    for name, value in scope["headers"]:
        if name == b"authorization":
            kind, _, secret = value.decode("latin-1").partition(" ")
            return secret.strip() if kind.lower() == "bearer" else ""
    return None
