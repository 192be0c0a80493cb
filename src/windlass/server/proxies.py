"""Which address does a request come from, where a proxy may stand before the server?"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import Scope

NOWHERE = "unknown"
# What proxies add. A program of this machine that speaks with the server itself sends none of them.
FORWARDED = frozenset(
    {
        b"forwarded",
        b"via",
        b"x-real-ip",
        b"x-client-ip",
        b"x-cluster-client-ip",
        b"x-envoy-external-address",
        b"x-original-forwarded-for",
        b"true-client-ip",
        b"cf-connecting-ip",
        b"fastly-client-ip",
        b"fly-client-ip",
    }
)
_PREFIX = b"x-forwarded-"
_HOPS = b"x-forwarded-for"


class Proxies:
    """The proxies whose word is taken for where a request comes from."""

    def __init__(self, trusted: Sequence[str] = ()) -> None:
        self._networks = [ipaddress.ip_network(each, strict=False) for each in trusted]

    def trusts(self, scope: Scope) -> bool:
        """Whether a trusted proxy sent the request."""
        return self._is_trusted(peer(scope))

    def address(self, scope: Scope) -> str:
        """The client's address: the last one in X-Forwarded-For that no trusted proxy has."""
        found = peer(scope)
        if not self._networks or not self._is_trusted(found):
            return found
        hops = b",".join(value for name, value in scope["headers"] if name == _HOPS)
        for hop in reversed(hops.decode("latin-1").split(",")):
            address = _address(hop)
            if address is None:
                break
            found = address
            if not self._is_trusted(found):
                break
        return found

    def _is_trusted(self, address: str) -> bool:
        try:
            found = ipaddress.ip_address(address)
        except ValueError:
            return False
        return any(found in network for network in self._networks)


def peer(scope: Scope) -> str:
    """Who is at the other end of the connection."""
    client = scope.get("client")
    return client[0] if client else NOWHERE


def forwarded(scope: Scope) -> str | None:
    """The first header that tells of a proxy."""
    names = (name for name, _ in scope["headers"] if name in FORWARDED or name.startswith(_PREFIX))
    return next((name.decode() for name in names), None)


def _address(hop: str) -> str | None:
    """An address of X-Forwarded-For, which may have a port or the brackets of IPv6."""
    text = hop.strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return None
