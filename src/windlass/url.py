"""What are the parts of a store's URL, and how is it shown without its password?

Cut where PostgreSQL's own library cuts: a password may hold any character but a slash, also `?` and `#`.
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import quote, unquote, urlencode

_SECRET = "***"  # noqa: S105 - stands where a password was
# Parameters of these names, or with these in their names, are nobody else's business.
_SECRETS = ("pass", "secret")
_FILE = "sqlite"


class Parts(NamedTuple):
    """scheme://login@place?query; the place has the path with it."""

    scheme: str
    login: str
    place: str
    query: str

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The parameters, decoded; a plus is one, as it is for PostgreSQL's library."""
        given = (pair.partition("=") for pair in self.query.split("&") if pair)
        return [(unquote(name), unquote(value)) for name, _, value in given]

    @property
    def torn(self) -> bool:
        """Whether a port may be the beginning of a password with a slash in it, and the path its end."""
        host, _, path = self.place.partition("/")
        return not self.login and ":" in host and "@" in path + self.query


def split(url: str) -> Parts:
    """A URL in its parts; whether they make sense is for others to say."""
    scheme, _, rest = url.partition("://")
    before, slash, path = rest.partition("/")
    login, _, host = before.rpartition("@")
    place, _, query = f"{host}{slash}{path}".partition("?")
    return Parts(scheme, login, place, query)


def join(parts: Parts, pairs: list[tuple[str, str]]) -> str:
    """A URL of parts, with other parameters than theirs."""
    login = parts.login.replace("@", "%40") + "@" if parts.login else ""
    query = f"?{urlencode(pairs, safe='/*', quote_via=quote)}" if pairs else ""
    return f"{parts.scheme}://{login}{parts.place}{query}"


def without_password(url: str) -> str:
    """A URL that may be shown and logged."""
    parts = split(url)
    if "://" not in url or parts.scheme == _FILE:
        return url
    name, colon, _ = parts.login.partition(":")
    shown = parts._replace(login=f"{name}{colon}{_SECRET if colon else ''}")
    if parts.torn and "@" in parts.place:
        name, _, rest = parts.place.partition(":")
        shown = parts._replace(login=f"{name}:{_SECRET}", place=rest.rpartition("@")[2])
    return join(shown, [_masked(name, value) for name, value in parts.pairs])


def _masked(name: str, value: str) -> tuple[str, str]:
    if "@" in name:
        # No parameter, but more of a torn password.
        return _SECRET, ""
    return name, _SECRET if any(word in name for word in _SECRETS) else value
