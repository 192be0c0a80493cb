"""Who is let in? Without keys only this machine's own programs; with keys whoever has one."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Sequence
from time import monotonic
from typing import TYPE_CHECKING

from windlass.server.denials import Source
from windlass.server.identity import LOCAL, Identity, Need
from windlass.server.keyring import refusal
from windlass.server.problems import Problem
from windlass.server.proxies import forwarded
from windlass.server.sessions import CLAIMED, cookie, key_of

if TYPE_CHECKING:
    from starlette.types import Scope

    from windlass.server.keyring import Keyring
    from windlass.server.proxies import Proxies
    from windlass.server.routes import Route

_BETWEEN_LOOKS = 0.1
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})


class Door:
    """Looks at each request before anything else does."""

    def __init__(
        self,
        keyring: Keyring,
        look: Callable[[], Awaitable[None]],
        proxies: Proxies,
        *,
        loopback: bool,
        hosts: Sequence[str] = (),
    ) -> None:
        """`loopback`: only this machine may ask without a key; else anybody may, by whichever address."""
        self._keyring = keyring
        self._proxies = proxies
        self._read = look
        self._looked = 0.0
        self._next_look: asyncio.Future[None] | None = None
        self._loopback = loopback
        # A page whose own name is resolved to this machine does not know these.
        own = () if loopback else (socket.gethostname().lower(), socket.getfqdn().lower())
        self._hosts = frozenset((*_LOOPBACK_NAMES, *own, *(each.lower() for each in hosts)))

    def check(self, scope: Scope) -> None:
        """Refuse what a web page could send to a server that asks for no key.

        A page of another site names itself as Origin; one that had its own name resolved to this machine
        names itself as Host. What a proxy sends may come from anywhere.
        """
        if self._keyring.needed:
            return
        host = origin = ""
        for name, value in scope["headers"]:
            if name == b"host":
                # Two of them are one too many, whatever the second one says.
                host += value.decode("latin-1").lower()
            elif name == b"origin":
                origin = value.decode("latin-1").lower()
        if not self._allows(_without_port(host)):
            names = ", ".join(sorted(self._hosts))
            allowed = f"one of {names}" if self._loopback else f"an IP address or one of {names}"
            detail = f"Host must be {allowed}, got {host!r}; --allowed-host adds a name"
            raise Problem(421, "foreign-host", detail)
        if self._loopback and (header := forwarded(scope)) and not self._proxies.trusts(scope):
            detail = (
                f"without API keys only programs of this machine are served, and {header} says that a proxy "
                "forwards for somebody: create a key, or name the proxy with --trusted-proxy"
            )
            raise Problem(403, "forwarded", detail)
        if origin and origin.partition("://")[2] != host:
            raise Problem(403, "foreign-origin", f"requests of other sites ({origin!r}) are not taken")

    def _allows(self, name: str) -> bool:
        if name in self._hosts:
            return True
        address = name[1:-1] if name.startswith("[") and name.endswith("]") else name
        try:
            found = ipaddress.ip_address(address)
        except ValueError:
            return False
        return found.is_loopback or not self._loopback

    async def look(self) -> None:
        """Whoever comes with an unknown key shares the next look with all others who do."""
        if self._next_look is None:
            self._next_look = asyncio.ensure_future(self._look_once())
        await asyncio.shield(self._next_look)

    async def _look_once(self) -> None:
        await asyncio.sleep(max(0.0, self._looked + _BETWEEN_LOOKS - monotonic()))
        # Who comes from now on may have a key that this look does not see yet.
        self._next_look = None
        self._looked = monotonic()
        await self._read()

    def _sent(self, scope: Scope) -> str | None:
        """The key that came with a request: in its header or, where keys are needed, in a cookie."""
        header = _bearer(scope)
        return key_of(scope) if header is None and self._keyring.needed else header

    def source(self, scope: Scope, status: int) -> Source:
        """Where a request that was refused came from, and with which key."""
        address = self._proxies.address(scope)
        sent = scope.get(CLAIMED) or _sent_by(scope)
        known = self._keyring.known(sent) if sent else None
        if known is not None:
            return Source(status, address, known.recorded)
        return Source(status, address, key=self._keyring.id_of(sent))

    async def who(self, scope: Scope) -> Identity | None:
        """Who calls, if that is known."""
        return await self._known(self._sent(scope))

    def knows(self, scope: Scope) -> bool:
        """Whether who called is still known, as the keys of the last look tell."""
        return self._keyring.known(self._sent(scope)) is not None

    async def opens(self, key: str) -> bool:
        """Whether an API key is good for anything."""
        return await self._known(key) is not None

    async def _known(self, sent: str | None) -> Identity | None:
        identity = self._keyring.known(sent)
        if identity is None and self._keyring.may_be_new(sent):
            await self.look()
            identity = self._keyring.known(sent)
        return identity

    def identify(self, scope: Scope, route: Route, *, looked: bool = False) -> Identity | None:
        """Who calls, if they may do what the route needs.

        None if their key may be newer than our last look: then `look` once, and ask again.
        """
        if route.need is Need.NOTHING:
            return LOCAL
        sent = self._sent(scope)
        identity = self._keyring.known(sent)
        if identity is None:
            if looked or not self._keyring.may_be_new(sent):
                raise refusal(sent)
            return None
        _check_rights(identity, route)
        return identity


def _check_rights(identity: Identity, route: Route) -> None:
    if not identity.may(route.need):
        roles = ", ".join(sorted(identity.roles))
        raise Problem(403, "not-allowed", f"this needs the right to {route.need}; the key's roles: {roles}")
    if route.whole and identity.tenant is not None:
        detail = f"this is about all tenants, and the key is bound to {identity.tenant!r}"
        raise Problem(403, "not-allowed", detail)


def _sent_by(scope: Scope) -> str | None:
    """The key that came with a request, whether or not the request may act by it."""
    header = _bearer(scope)
    return cookie(scope) if header is None else header


def _bearer(scope: Scope) -> str | None:
    """The key in a request's header."""
    for name, value in scope["headers"]:
        if name == b"authorization":
            kind, _, secret = value.decode("latin-1").partition(" ")
            return secret.strip() if kind.lower() == "bearer" else ""
    return None


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdecimal() else host
