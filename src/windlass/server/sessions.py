"""How does a browser show who it is? By a cookie that holds the API key, and proves that our own page asks.

The cookie is out of reach for scripts, is sent to this site alone and ends with the browser's session; a
key that is revoked ends it everywhere, and any server of the store knows it. A request that changes something
must carry, beside it, a token that only a page of ours can have read, and must name our own origin.
"""

from __future__ import annotations

import hashlib
import hmac
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING

from windlass.server.problems import Problem

if TYPE_CHECKING:
    from starlette.types import Scope

_SAFE = frozenset({"GET", "HEAD"})
_NAME = "windlass"
# A name that browsers accept over HTTPS only, and only for this very host.
_SECURE_NAME = "__Host-windlass"
TOKEN = b"x-windlass-token"
# Where a request keeps the key that somebody tried to log in with.
CLAIMED = "windlass.claimed"


def key_of(scope: Scope) -> str | None:
    """The API key in a request's cookie, if there is one and the request may act by it."""
    key = cookie(scope)
    if key is not None and scope["method"] not in _SAFE:
        _check_ours(scope, key)
    return key


def token_for(key: str) -> str:
    """What the page sends with whatever changes something; it tells nothing about the key."""
    return hmac.new(key.encode(), b"windlass dashboard", hashlib.sha256).hexdigest()


def begin(scope: Scope, key: str) -> bytes:
    """The cookie that begins a session."""
    more = "; Secure" if is_secure(scope) else ""
    return f"{_name(scope)}={key}; Path=/; HttpOnly; SameSite=Strict{more}".encode()


def end(scope: Scope) -> bytes:
    """The cookie that ends it."""
    return begin(scope, "") + b"; Max-Age=0"


def is_secure(scope: Scope) -> bool:
    """Whether the browser speaks HTTPS, with us or with a proxy before us."""
    return scope["scheme"] == "https" or _header(scope, b"x-forwarded-proto") == "https"


def check_origin(scope: Scope) -> None:
    """Refuse what the page of another site sends."""
    origin, host = _header(scope, b"origin"), _header(scope, b"host")
    if origin is None or host is None or origin.partition("://")[2].lower() != host.lower():
        raise Problem(403, "foreign-origin", f"requests of other sites ({origin!r}) are not taken")


def _check_ours(scope: Scope, key: str) -> None:
    check_origin(scope)
    # In bytes: a text that is not ASCII cannot be compared so.
    if not hmac.compare_digest((_header(scope, TOKEN) or "").encode(), token_for(key).encode()):
        detail = f"a request by cookie must carry the header {TOKEN.decode()}; load the page anew"
        raise Problem(403, "not-our-page", detail)


def cookie(scope: Scope) -> str | None:
    """The API key in a request's cookie, if there is one."""
    text = _header(scope, b"cookie")
    if text is None:
        return None
    try:
        found = SimpleCookie(text)
    except CookieError:
        return None
    held = found.get(_name(scope))
    return held.value if held is not None and held.value else None


def _name(scope: Scope) -> str:
    """What the cookie is called. Cookies do not part ports, and two servers may be two ports of one host."""
    port = (_header(scope, b"host") or "").rpartition(":")[2]
    name = _SECURE_NAME if is_secure(scope) else _NAME
    return f"{name}-{port}" if port.isdecimal() else name


def _header(scope: Scope, name: bytes) -> str | None:
    found = [value for key, value in scope["headers"] if key == name]
    return found[0].decode("latin-1") if found else None
