"""What does a postgresql:// URL say, to the driver and to us?"""

from __future__ import annotations

import os
import re

import msgspec
import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import Conninfo

from windlass.errors import must_be
from windlass.url import join, split, without_password

_SECRET = "***"  # noqa: S105 - stands where a password was
# Client-side limits, because no server-side one sees a half-open socket. The URL stands above them.
_DEFAULTS: dict[str, str] = {
    "connect_timeout": "5",
    "tcp_user_timeout": "5000",
    "keepalives": "1",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "client_encoding": "UTF8",
}


# Goes with the start of a session; a session without it is not the one that was asked for.
MARK = "windlass.session"


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """Where the database is. `shown` carries no password; everything else may."""

    url: str
    shown: str
    # A transaction pooler stands between: no session state, no prepared statements, no LISTEN.
    pooler: bool = False
    notify: bool = True

    def conninfo(self, **settings: str) -> str:
        """What the driver is given; settings of the session go with the start of the connection."""
        given = conninfo_to_dict(self.url)
        settings = {MARK: "on"} | settings
        options = ["-c " + f"{name}={value}".replace(" ", "\\ ") for name, value in settings.items()]
        if given.get("options"):
            options.append(str(given["options"]))
        # A pooler refuses what it does not know; there the settings are made with each transaction.
        more = {} if self.pooler else {"options": " ".join(options)}
        if "," in str(given.get("host") or ""):
            # Of several servers only one can be written to; after a failover it is another one.
            given.setdefault("target_session_attrs", "read-write")
        return make_conninfo("", **(_DEFAULTS | {"application_name": "windlass"} | given | more))

    def environment(self) -> dict[str, str]:
        given = conninfo_to_dict(self.url)
        known = ((option.keyword.decode(), option.envvar) for option in Conninfo.get_defaults())
        said = {
            variable.decode(): str(given[name]) for name, variable in known if variable and given.get(name)
        }
        return dict(os.environ) | said


def read(url: str) -> Address:
    """A URL as an address; `windlass_pooler=on` and `windlass_notify=off` are for us, the rest is libpq's."""
    parts, shown = split(url), without_password(url)
    if _BAD_ESCAPE.search(url):
        allowed = "such that two hex digits (not 00) follow each %, and a % itself is written %25"
        raise must_be("database URL", shown, allowed)
    ours = {name: value for name, value in parts.pairs if name in _OURS}
    theirs = [(name, value) for name, value in parts.pairs if name not in _OURS]
    _check_parameters(ours | dict(theirs))
    bare = join(parts, theirs)
    try:
        given = conninfo_to_dict(bare)
    except psycopg.Error as error:
        # The driver's message repeats what it could not read, which may be the password.
        raise must_be("database URL", shown, _FORM) from error.with_traceback(None)
    # One for each host; left out, it is PostgreSQL's own.
    for port in str(given.get("port") or "").split(","):
        if port and not (port.isascii() and port.isdigit() and 1 <= int(port) <= _HIGHEST_PORT):
            more = ", and a / in a password %2F" if parts.torn else ""
            allowed = f"a number from 1 to {_HIGHEST_PORT}{more}"
            raise must_be("port of the database URL", _SECRET if parts.torn else port, allowed)
    pooler = ours.get("windlass_pooler") == "on"
    notify = not pooler and ours.get("windlass_notify") != "off"
    return Address(url=bare, shown=without_password(bare), pooler=pooler, notify=notify)


def _check_parameters(given: dict[str, str]) -> None:
    """The driver would find wrong values only when it connects, and call it a server that is away."""
    # `ssl=true` is understood in URLs alone.
    known = {option.keyword.decode() for option in Conninfo.get_defaults()} | {"ssl", *_OURS}
    for name, value in given.items():
        if name not in known:
            allowed = (
                "one of PostgreSQL's, such as sslmode or connect_timeout, windlass_pooler or windlass_notify"
            )
            raise must_be("parameter of the database URL", _SECRET if "@" in name else name, allowed)
        if name in _OURS and value not in ("on", "off"):
            raise must_be(name, value, "on or off")
        where = f"{name} of the database URL"
        if name in _NUMBERS and not _NUMBER.fullmatch(value):
            raise must_be(where, value, "a whole number")
        if name in _CHOICES and value not in _CHOICES[name]:
            raise must_be(where, value, "one of " + ", ".join(_CHOICES[name]))


_OURS = ("windlass_pooler", "windlass_notify")
_FORM = "postgresql://user@host/name, with an address of IPv6 in [ ]"
_BAD_ESCAPE = re.compile(r"%(?![0-9a-fA-F]{2})|%00")
_HIGHEST_PORT = 65_535
_NUMBER = re.compile(r"-?[0-9]{1,9}")
_NUMBERS = _DEFAULTS.keys() - {"client_encoding"}
_CHOICES = {
    "sslmode": ("disable", "allow", "prefer", "require", "verify-ca", "verify-full"),
    "target_session_attrs": ("any", "read-write", "read-only", "primary", "standby", "prefer-standby"),
    "channel_binding": ("disable", "prefer", "require"),
    "gssencmode": ("disable", "prefer", "require"),
}
