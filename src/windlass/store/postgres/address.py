"""What does a postgresql:// URL say, to the driver and to us?"""

from __future__ import annotations

import os
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import msgspec
import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from windlass.errors import InvalidValue

_SECRET = "***"  # noqa: S105 - stands where a password was
_SWITCHES = {"on": True, "off": False}
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
        """The same for libpq's own programs."""
        given = conninfo_to_dict(self.url)
        return {
            **os.environ,
            **{_VARIABLES[name]: str(given[name]) for name in _VARIABLES if given.get(name)},
        }


_VARIABLES = {
    "host": "PGHOST",
    "port": "PGPORT",
    "user": "PGUSER",
    "password": "PGPASSWORD",
    "dbname": "PGDATABASE",
    "sslmode": "PGSSLMODE",
    "sslrootcert": "PGSSLROOTCERT",
}


def read(url: str) -> Address:
    """A URL as an address; `windlass_pooler=on` and `windlass_notify=off` are for us, the rest is libpq's."""
    parts = urlsplit(url)
    given = [each for each in parts.query.split("&") if each]
    ours = dict(parse_qsl("&".join(filter(_is_ours, given)), keep_blank_values=True))
    # As they were written: libpq takes a plus for what it is, and no blank.
    bare = urlunsplit(parts._replace(query="&".join(each for each in given if not _is_ours(each))))
    pooler = _switch(ours.pop("windlass_pooler", "off"), "windlass_pooler")
    notify = _switch(ours.pop("windlass_notify", "on"), "windlass_notify")
    if ours:
        allowed = "windlass_pooler or windlass_notify"
        raise InvalidValue("parameter of the database URL", min(ours), allowed)
    try:
        conninfo_to_dict(bare)
    except psycopg.Error as error:
        # The driver's message repeats what it could not read, which may be the password.
        raise InvalidValue(
            "database URL", _shown(bare), "postgresql://user@host/name"
        ) from error.with_traceback(None)
    return Address(url=bare, shown=_shown(bare), pooler=pooler, notify=notify and not pooler)


def _is_ours(parameter: str) -> bool:
    return parameter.startswith("windlass_")


def _switch(value: str, name: str) -> bool:
    if value not in _SWITCHES:
        raise InvalidValue(name, value, "on or off")
    return _SWITCHES[value]


def _shown(url: str) -> str:
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    name, colon, _ = user.partition(":")
    masked = [(key, _SECRET if "pass" in key else value) for key, value in parse_qsl(parts.query)]
    netloc = f"{name}{colon}{_SECRET if colon else ''}{at}{host}"
    return urlunsplit(parts._replace(netloc=netloc, query=urlencode(masked, safe="/")))
