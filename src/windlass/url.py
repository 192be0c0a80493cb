"""What are the parts of a store's URL, what is none, and how is one shown without its password?

Cut where PostgreSQL's own library cuts: a password may hold any character but a slash, also `?` and `#`.
"""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import quote, unquote, urlencode

from windlass.errors import must_be

_SECRET = "***"  # noqa: S105 - stands where a password was
NOT_SHOWN = "(not shown)"
ALLOWED = (
    "a path, sqlite:///relative.db, sqlite:////absolute/path.db, sqlite:///:memory:, "
    "postgresql://user@host/database, or https://host for a server"
)
# Parameters of these names, or with these in their names, are nobody else's business.
_SECRETS = ("pass", "secret", "key", "token")
_FILE = "sqlite:///"
POSTGRES = ("postgresql://", "postgres://")
HTTP = ("http://", "https://")
# `host=... password=...`, as PostgreSQL's library and others take it, or a single variable of a shell.
_DSN = re.compile(
    r"(^|[\s;&?,])((host|hostaddr|port|dbname|user|service|sslmode|server|database)|\w*(pass|pwd|secret|token|key)\w*"
    r"|\w+_ur[il])\s*=",
    re.IGNORECASE,
)
# The beginning of an address, complete or not: `postgres//`, `postgresql:/`, `http:`.
_ADDRESS = re.compile(
    r"[\s\"']*(postgres\w*|pgsql|psql|mysql|mariadb|mssql|oracle|mongodb|rediss?|https?|sqlite3?|file|[jo]dbc)"
    r"\s*([:;+]|//|\\)",
    re.IGNORECASE,
)
_LOGIN = re.compile(r"[^/\s]*:[^/]*@|[^/.][^/]*@")
_API_KEY = re.compile(r"wl_\w+_")


class FileName(str):
    """The name of a file as a `Path` gives it: a question mark in it begins no parameters."""

    __slots__ = ()


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


def check(url: str) -> None:
    """Refuse what names no store. The password of a mistyped address must not become the name of a file."""
    if url.startswith(POSTGRES):
        return
    if url.startswith(HTTP):
        if not split(url).place.partition("/")[0]:
            raise must_be("database URL", NOT_SHOWN, ALLOWED)
        return
    if not _is_file(url):
        # Not shown: it may hold a password or a key.
        hint = "; write sqlite:///NAME for a file of that name"
        raise must_be("database URL", NOT_SHOWN, ALLOWED + hint)


def _is_file(url: str) -> bool:
    """Whether the name of a file can be meant."""
    path = url.removeprefix(_FILE)
    if "://" in path or _DSN.search(path):
        return False
    # With the prefix somebody says that it is a file, whatever it looks like.
    return path != url or not (_ADDRESS.match(url) or _LOGIN.match(url.lstrip("/")) or _API_KEY.match(url))


def without_password(url: str) -> str:
    """A URL that may be shown and logged."""
    if url.startswith(HTTP):
        parts = split(url)
        # What stands before the host is an API key.
        return join(parts._replace(login=""), [_masked(name, value) for name, value in parts.pairs])
    if not url.startswith(POSTGRES):
        return url if _is_file(url) else NOT_SHOWN
    parts = split(url)
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
