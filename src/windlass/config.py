"""What can be configured, what is allowed, and where does a value come from?"""

from __future__ import annotations

import ipaddress
import os
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeVar

import msgspec

from windlass.checks import check_app_version
from windlass.duration import parse_duration
from windlass.errors import InvalidValue, must_be
from windlass.payload import Ring, read_key
from windlass.size import parse_size
from windlass.url import NOT_SHOWN, check

T = TypeVar("T")

SHORTEST_LEASE = timedelta(seconds=60)
LONGEST_LEASE = timedelta(seconds=3600)
SHORTEST_HANG = timedelta(seconds=5)
LONGEST_HANG = timedelta(hours=1)
HANG_LIMITS = "between 5s and 1h, or off"
_MOST_SLOTS = 10_000
_LONGEST_POOL = 64
_MOST_JOBS = 10**9
_SHORTEST_POLL = timedelta(milliseconds=50)
_LONGEST_POLL = timedelta(seconds=60)
_MOST_PORTS = 65_535
_LEAST_BOUND = 10
_MOST_BOUND = 100_000
# Seconds that a request waits for a store that does not answer, unless the server is configured otherwise.
PATIENCE = 5.0
_LEAST_PATIENCE = 1.0
_MOST_PATIENCE = 60.0

FILE_NAME = "windlass.toml"
PREFIX = "WINDLASS_"


def cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class PoolConfig(msgspec.Struct, frozen=True):
    """A set of types, by patterns, with slots of its own."""

    name: str
    types: tuple[str, ...]
    slots: int

    def __post_init__(self) -> None:
        # The store keeps it, and metrics have it as a label.
        if not self.name.isprintable() or len(self.name) > _LONGEST_POOL:
            raise must_be("name of a pool", self.name, f"up to {_LONGEST_POOL} printable characters")
        if not 1 <= self.slots <= _MOST_SLOTS:
            raise must_be(f"slots of pool {self.name}", self.slots, f"between 1 and {_MOST_SLOTS}")


def parse_pool(text: str) -> PoolConfig:
    """NAME=TYPES:SLOTS, such as `email=send_*,mail.*:5`."""
    name, equals, rest = text.partition("=")
    types, colon, slots = rest.rpartition(":")
    patterns = tuple(part.strip() for part in types.split(",") if part.strip())
    if not (equals and colon and name.strip() and patterns and slots.strip().isdecimal()):
        raise must_be("pool", text, "NAME=TYPES:SLOTS, such as email=send_*,mail.*:5")
    return PoolConfig(name.strip(), patterns, int(slots))


class WorkerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How one worker process works. Refuses nonsense when it is made."""

    # Slots: `def` handlers and shell jobs on threads, `async def` handlers on the loop ...
    threads: int = 10
    coroutines: int = 100
    # ... `executor="process"` in children, one per core unless told otherwise ...
    processes: int = cores()
    # ... or, if given, one bound over all of them.
    concurrency: int | None = None
    # Pools of their own for some types, so that heavy ones never keep light ones waiting.
    pools: tuple[PoolConfig, ...] = ()
    # Bytes that jobs of types with a `memory` may take together; None: nine tenths of the machine's.
    memory: int | None = None
    # Beyond so many slots held by threads that do not end, a new process takes over. None: never, also not
    # for a blocked loop, because the process is not ours.
    most_held: int | None = None
    # A child is replaced after so many jobs, or when it has grown by so much since it began.
    child_jobs: int = 10_000
    child_growth: int = 256 * 2**20
    # Patterns of types to serve, such as "email.*"; empty: all that this process has handlers for.
    types: tuple[str, ...] = ()
    # Shell jobs: all of them, "local" for those that did not come over HTTP, or none. None: "local" where the
    # store is a file of this machine and there is no API key, which the starting command looks up.
    shell: Literal["local"] | bool | None = False
    lease: timedelta = timedelta(seconds=60)
    poll: timedelta = timedelta(seconds=1)
    # A shutdown lets running jobs finish for `grace`, and is over after `exit_after` in any case.
    grace: timedelta = timedelta(seconds=25)
    exit_after: timedelta = timedelta(seconds=30)
    # A worker process that does not answer for so long is killed; None: it may hang for ever.
    hang_limit: timedelta | None = timedelta(seconds=15)
    # What the names of this worker's processes begin with; given by a supervisor, which ends them by it.
    tag: str | None = None
    # For tests only: leases shorter than a minute.
    unsafe_lease: bool = False

    def __post_init__(self) -> None:
        names = [pool.name for pool in self.pools]
        if len(set(names)) < len(names):
            raise must_be("pools", ", ".join(names), "pools of different names")
        for name in ("threads", "coroutines", "processes", "concurrency", "child_jobs", "most_held"):
            slots = getattr(self, name)
            most = _MOST_JOBS if name == "child_jobs" else _MOST_SLOTS
            if slots is not None and not 1 <= slots <= most:
                raise must_be(name, slots, f"between 1 and {most}")
        if not self.unsafe_lease and not SHORTEST_LEASE <= self.lease <= LONGEST_LEASE:
            raise must_be("lease", f"{self.lease.total_seconds():g}s", "between 60s and 3600s")
        if not _SHORTEST_POLL <= self.poll <= _LONGEST_POLL:
            raise must_be("poll", f"{self.poll.total_seconds():g}s", "between 0.05s and 60s")
        if self.hang_limit is not None and not SHORTEST_HANG <= self.hang_limit <= LONGEST_HANG:
            raise must_be("hang_limit", f"{self.hang_limit.total_seconds():g}s", HANG_LIMITS)
        if not timedelta(0) <= self.grace <= self.exit_after:
            raise must_be("grace", f"{self.grace.total_seconds():g}s", "between 0s and exit_after")


class ServerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How one server serves. Refuses nonsense when it is made."""

    host: str = "127.0.0.1"
    port: int = 8080
    tls_cert: str | None = None
    tls_key: str | None = None
    # How many seconds a request waits for a store that does not answer.
    patience: float = PATIENCE
    # Whether jobs of the type `shell` are taken.
    shell: bool = False
    # Nobody needs a key, wherever they come from.
    insecure: bool = False
    # Addresses or networks of proxies whose X-Forwarded-For is believed.
    trusted_proxies: tuple[str, ...] = ()
    # Names, beside this machine's own, under which a server without keys may be reached.
    allowed_hosts: tuple[str, ...] = ()
    # How many requests may be carried out at once, and how many may wait for the end of a job.
    most_requests: int = 1_000
    most_waiting: int = 10_000
    # Whether it looks after the fleet; a worker in the same process does so already.
    upkeep: bool = True

    def __post_init__(self) -> None:
        if not 0 <= self.port <= _MOST_PORTS:
            raise must_be("port", self.port, f"between 0 and {_MOST_PORTS}")
        if not _LEAST_PATIENCE <= self.patience <= _MOST_PATIENCE:
            raise must_be("patience", f"{self.patience:g}s", "between 1s and 60s")
        for field in ("most_requests", "most_waiting"):
            if not _LEAST_BOUND <= getattr(self, field) <= _MOST_BOUND:
                raise must_be(field, getattr(self, field), "between 10 and 100,000")
        if self.tls_key is not None and self.tls_cert is None:
            raise must_be("tls_key", self.tls_key, "given together with tls_cert")
        for each in self.trusted_proxies:
            try:
                ipaddress.ip_network(each, strict=False)
            except ValueError:
                allowed = "addresses or networks, such as 10.0.0.5 or 10.0.0.0/24"
                raise must_be("trusted_proxies", each, allowed) from None

    @property
    def loopback(self) -> bool:
        """Whether only programs of this machine can reach it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def warnings(self) -> list[str]:
        """What an operator should know before others can reach it."""
        if self.loopback:
            return []
        found = []
        if self.insecure:
            found.append(f"anybody who can reach {self.host} may do everything here: it asks for no API key")
        if self.tls_cert is None and not self.trusted_proxies:
            found.append(
                f"API keys and payloads are sent to {self.host} unencrypted: use --tls-cert, or name the "
                "proxy that speaks HTTPS with --trusted-proxy"
            )
        return found


class Source(StrEnum):
    """Where an effective value was found; the first of these that has one wins."""

    FLAG = "flag"
    ENV = "env"
    FILE = "file"
    DEFAULT = "default"


class Value(msgspec.Struct, frozen=True):
    """An effective value, and where exactly it was found: the flag, variable or file."""

    name: str
    value: Any
    source: Source
    where: str = ""


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """Every effective value by name, checked."""

    values: dict[str, Value]
    database_url: str
    # The application's queue as `module:name`, if one is named.
    app: str | None
    # The release of the application; empty if nobody said.
    app_version: str
    # The keys for encrypted fields of payloads; the first one encrypts.
    encryption_keys: tuple[str, ...]
    # What messages to the webhook are signed with.
    alerts_secret: str | None

    def worker(self) -> WorkerConfig:
        """How a worker started here works."""
        return self._section(_WORKER, WorkerConfig)

    def server(self) -> ServerConfig:
        """How a server started here serves."""
        return self._section(_SERVER, ServerConfig)

    def sets(self, section: str) -> bool:
        """Whether anybody has said anything about a section."""
        return any(
            each.source is not Source.DEFAULT
            for name, each in self.values.items()
            if name.startswith(f"{section}.")
        )

    def placed(self, section: str, error: InvalidValue) -> InvalidValue:
        """An error about a value of a section, with the place where the value stands."""
        at = self.values[f"{section}.{error.field}"]
        return must_be(f"{at.name} ({at.where or at.source})", error.value, error.allowed)

    def _section(self, section: str, kind: Callable[..., T]) -> T:
        found = {
            name.removeprefix(section): each for name, each in self.values.items() if name.startswith(section)
        }
        try:
            return kind(**{name: each.value for name, each in found.items()})
        except InvalidValue as error:
            _refuse(found[error.field], error.value, error.allowed)


def load(
    flags: Mapping[str, object] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Config:
    """The effective configuration: flag over WINDLASS_* over windlass.toml over default.

    A flag of None was not given. InvalidValue names the value, where it stands and what is allowed.
    """
    given = {name: value for name, value in (flags or {}).items() if value is not None}
    variables = os.environ if environ is None else environ
    written = _read_file((folder or Path()) / FILE_NAME)
    values = {name: _effective(name, given, variables, written) for name in OPTIONS}
    own = {name.replace(".", "_"): each.value for name, each in values.items()}
    fields: dict[str, Any] = {name: own[name] for name in Config.__struct_fields__[1:]}
    config = Config(values=values, **fields)
    config.worker()
    config.server()
    return config


def app_version() -> str:
    """The release of the application in this process, as the environment or windlass.toml says."""
    return load().app_version


def ring() -> Ring:
    """The encryption keys of this process."""
    return Ring(load().encryption_keys)


def variable(name: str) -> str:
    """The environment variable of an option: worker.threads is WINDLASS_WORKER_THREADS."""
    return PREFIX + name.upper().replace(".", "_")


def unknown_variables(environ: Mapping[str, str] | None = None) -> list[str]:
    """Unknown WINDLASS_* variables; not refused, for a cluster sets WINDLASS_SERVICE_HOST and the like."""
    known = {variable(name) for name in OPTIONS} | _OTHER_VARIABLES
    variables = os.environ if environ is None else environ
    return sorted(name for name in variables if name.startswith(PREFIX) and name not in known)


# --- finding a value ----------------------------------------------------------------------------


def _effective(
    name: str, flags: Mapping[str, object], environ: Mapping[str, str], written: Mapping[str, object]
) -> Value:
    if name in flags:
        option = _FLAGS.get(name, name.removeprefix(_WORKER).removeprefix(_SERVER)).replace("_", "-")
        return _read(Value(name, flags[name], Source.FLAG, f"--{option}"))
    said = environ.get(variable(name))
    # For a service named windlass-server a cluster sets WINDLASS_SERVER_PORT to tcp://ADDRESS:PORT.
    if said and not (name == "server.port" and said.startswith(("tcp://", "udp://"))):
        return _read(Value(name, said, Source.ENV, variable(name)))
    if name in written:
        return _read(Value(name, written[name], Source.FILE, FILE_NAME))
    return Value(name, OPTIONS[name].default, Source.DEFAULT)


def _read(raw: Value) -> Value:
    try:
        return msgspec.structs.replace(raw, value=OPTIONS[raw.name].read(raw.value))
    except InvalidValue as error:
        _refuse(raw, NOT_SHOWN if raw.name in SECRETS else error.value, error.allowed)


def _refuse(at: Value, value: object, allowed: str) -> NoReturn:
    """Name the option and the place where its value stands."""
    field = f"{at.name} ({at.where})" if at.where else at.name
    raise must_be(field, value, allowed) from None


def _read_file(path: Path) -> dict[str, object]:
    """The file's values by dotted name; unknown sections and keys are refused."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        if path.is_symlink():
            raise must_be(FILE_NAME, str(path), "a file that can be read (the link leads nowhere)") from None
        return {}
    except (UnicodeDecodeError, OSError) as error:
        raise must_be(FILE_NAME, str(path), f"a file that can be read ({error})") from None
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        # The place alone: the parser's own words may repeat what stands there, which may be a secret.
        place = _PLACE.search(str(error))
        where = "the end of the file" if place is None else place[0]
        told = f"{FILE_NAME} must be valid TOML, got an error at {where}"
        raise InvalidValue(told, field=FILE_NAME, value=NOT_SHOWN, allowed="valid TOML") from None
    values: dict[str, object] = {}
    for key, value in content.items():
        if isinstance(value, dict):
            values.update({f"{key}.{inner}": each for inner, each in value.items()})
        else:
            values[key] = value
    for name in values:
        if name not in OPTIONS:
            raise must_be(f"each name in {FILE_NAME}", name, "one of " + ", ".join(OPTIONS))
    return values


_PLACE = re.compile(r"line \d+, column \d+")

# --- the options --------------------------------------------------------------------------------


class _Option(msgspec.Struct, frozen=True):
    read: Callable[[object], object]
    default: object


def _text(value: object) -> object:
    if isinstance(value, str) and value:
        return value
    raise must_be("", value, "a text")


def _database_url(value: object) -> object:
    url = _text(value)
    check(str(url))
    return url


def _whole(value: object) -> object:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().removeprefix("-").isdecimal():
        return int(value)
    raise must_be("", value, "a whole number")


def _yes_or_no(value: object) -> object:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in _SWITCH:
        return _SWITCH[value.strip().lower()]
    raise must_be("", value, "true or false")


def _duration(value: object) -> object:
    if not isinstance(value, int | float | str | timedelta):
        raise must_be("", value, "seconds, or a duration such as 30s, 5m, 2h")
    return parse_duration(value)


def _seconds(value: object) -> object:
    return parse_duration(value).total_seconds()


def parse_hang_limit(value: object, field: str = "") -> timedelta | None:
    """A duration, or None for `off`."""
    if value is None or (isinstance(value, str) and value.strip().lower() == "off"):
        return None
    try:
        return parse_duration(value)
    except InvalidValue:
        raise must_be(field, value, HANG_LIMITS) from None


def _texts(value: object, allowed: str, separator: str | None = ",") -> Sequence[str]:
    parts = value.split(separator) if isinstance(value, str) else value
    if not isinstance(parts, list | tuple) or not all(isinstance(part, str) for part in parts):
        raise must_be("", value, allowed)
    return parts


def _listed(allowed: str) -> Callable[[object], tuple[str, ...]]:
    return lambda value: tuple(part.strip() for part in _texts(value, allowed) if part.strip())


def _patterns(value: object) -> object:
    allowed = "names or patterns of types, such as email.*,report"
    found = _listed(allowed)(value)
    if isinstance(value, str) and not found:
        # Not all types: an empty variable of a script would serve what it was to leave out.
        raise must_be("", value, allowed)
    return found


def _pools(value: object) -> object:
    parts = _texts(value, "pools such as email=send_*:5, with spaces between them", separator=None)
    return tuple(parse_pool(part) for part in parts)


def _keys(value: object) -> object:
    found = _listed("keys in base64, separated by commas")(value)
    for key in found:
        read_key(key)
    return found


_NAMES = _listed("names or addresses, separated by commas")
_SWITCH = dict.fromkeys(("true", "yes", "on", "1"), True) | dict.fromkeys(("false", "no", "off", "0"), False)
_WORKER = "worker."
_SERVER = "server."
# Flags that are not called as their options are.
_FLAGS = {
    "database_url": "db",
    "worker.pools": "pool",
    "server.trusted_proxies": "trusted-proxy",
    "server.allowed_hosts": "allowed-host",
}
_STANDARD = WorkerConfig()
_SERVED = ServerConfig()
# Read by the command line itself, or told to processes that we start.
_OTHER_VARIABLES = {
    f"{PREFIX}{name}" for name in ("API_KEY", "DEBUG", "SUPERVISED", "CHILD", "JOB_ID", "ATTEMPT")
}

# Options whose values are in no message.
SECRETS = frozenset({"database_url", "encryption_keys", "alerts.secret"})
OPTIONS: dict[str, _Option] = {
    "database_url": _Option(_database_url, "sqlite:///windlass.db"),
    "app": _Option(_text, None),
    "app_version": _Option(check_app_version, ""),
    "worker.threads": _Option(_whole, _STANDARD.threads),
    "worker.coroutines": _Option(_whole, _STANDARD.coroutines),
    "worker.processes": _Option(_whole, _STANDARD.processes),
    "worker.child_jobs": _Option(_whole, _STANDARD.child_jobs),
    "worker.child_growth": _Option(parse_size, _STANDARD.child_growth),
    "worker.pools": _Option(_pools, _STANDARD.pools),
    "worker.memory": _Option(parse_size, _STANDARD.memory),
    # A process of its own can be started anew; a worker inside another program cannot.
    "worker.most_held": _Option(_whole, 3),
    "worker.concurrency": _Option(_whole, _STANDARD.concurrency),
    "worker.types": _Option(_patterns, _STANDARD.types),
    # On the command line the store decides, if nobody says anything.
    "worker.shell": _Option(_yes_or_no, default=None),
    "worker.lease": _Option(_duration, _STANDARD.lease),
    "worker.poll": _Option(_duration, _STANDARD.poll),
    "worker.grace": _Option(_duration, _STANDARD.grace),
    "worker.exit_after": _Option(_duration, _STANDARD.exit_after),
    "worker.hang_limit": _Option(parse_hang_limit, _STANDARD.hang_limit),
    "server.host": _Option(_text, _SERVED.host),
    "server.port": _Option(_whole, _SERVED.port),
    "server.tls_cert": _Option(_text, _SERVED.tls_cert),
    "server.tls_key": _Option(_text, _SERVED.tls_key),
    "server.patience": _Option(_seconds, _SERVED.patience),
    "server.most_requests": _Option(_whole, _SERVED.most_requests),
    "server.most_waiting": _Option(_whole, _SERVED.most_waiting),
    "server.shell": _Option(_yes_or_no, _SERVED.shell),
    "server.insecure": _Option(_yes_or_no, _SERVED.insecure),
    "server.trusted_proxies": _Option(_NAMES, _SERVED.trusted_proxies),
    "server.allowed_hosts": _Option(_NAMES, _SERVED.allowed_hosts),
    "encryption_keys": _Option(_keys, ()),
    "alerts.secret": _Option(_text, None),
}
