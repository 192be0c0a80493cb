"""Which function runs the jobs of a type, and with which options?"""

from __future__ import annotations

import fnmatch
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypedDict

import msgspec

from windlass import checks
from windlass.duration import Duration, parse_duration
from windlass.errors import InvalidPayload, InvalidValue, must_be
from windlass.job import (
    DEFAULT_MAX_ATTEMPTS,
    DEFAULT_PRIORITY,
    DEFAULT_TIMEOUT,
    LATEST,
    LONGEST_TIMEOUT,
    REFERENCE,
    Job,
    Keep,
    TypeInfo,
)
from windlass.origin import Origin, origin_of
from windlass.outcome import Policy
from windlass.payload import Ring, Signature, Upgrades, encode
from windlass.payload.seal import has_seal
from windlass.policy import (
    RULES,
    UNLIMITED,
    Limit,
    Retry,
    Rules,
    Verify,
    limit_options,
    make_limit,
    make_verify,
)
from windlass.schedule import NewSchedule
from windlass.size import Size, parse_size

Kind = Literal["thread", "loop", "process", "shell"]
Executor = Literal["thread", "loop", "process"]
WhenUnsure = Literal["run", "stop"]

SHELL = "shell"
# The schema version of commands that came over HTTP. A worker without --shell knows version 1 alone, and no
# worker claims a version that is newer than the one it knows.
SENT_SHELL = 2
CheckDraft = Callable[[object, str], object]


@dataclass(frozen=True, kw_only=True)
class Handler:
    """A registered function and what holds for its jobs."""

    name: str
    function: Callable[..., Any]
    kind: Kind
    signature: Signature
    timeout: timedelta
    max_attempts: int
    priority: int
    policy: Policy
    version: int
    when_unsure: WhenUnsure
    upgrades: Upgrades
    # The fields that are stored encrypted.
    encrypt: tuple[str, ...] = ()
    # What a job may take of the machine, its descendants included: bytes of memory, seconds of CPU.
    memory: int | None = None
    cpu_time: timedelta | None = None
    # Where a child process finds the function; None if it cannot.
    origin: Origin | None = None
    # What its jobs may take together, over all workers, and what they share with other types.
    limit: Limit = UNLIMITED
    limit_key: str | None = None
    # The highest priority that its jobs may be enqueued with; None: any.
    max_priority: int | None = None
    # Whether its dead jobs are run again only by somebody who says that they have looked at them.
    sensitive: bool = False
    # What becomes of the handler's return value.
    result: Keep = True
    # How a share of its completed jobs is checked later, and a payload with which a smoke test may run it.
    verify: Verify | None = None
    smoke: Mapping[str, Any] | None = None
    # The options that the code gave; the others may be set by operators as defaults.
    said: frozenset[str] = frozenset()
    # Refuses a draft that was made for another store than its queue's; None: no queue has registered it.
    check_draft: CheckDraft | None = None

    def current(self, job: Job, ring: Callable[[], Ring]) -> bytes | msgspec.Raw:
        """A job's payload as this version takes it: in the clear, upgraded, without its reference."""
        if job.schema_version >= self.version and b'"$' not in bytes(job.payload):
            return job.payload
        content: dict[str, Any] = msgspec.json.decode(job.payload)
        content.pop(REFERENCE, None)
        if has_seal(job.payload):
            content = ring().open(content, job.id)
        return encode(self.upgrades.apply(content, job.schema_version), self.name)

    def info(self) -> TypeInfo:
        """What the catalogue says to producers that do not have the function."""
        verify, schema = self.verify, self.signature.schema
        smoke = None if self.smoke is None or self.encrypt else self.signature.encode(self.smoke)
        options: dict[str, Any] = {
            "kind": self.kind,
            "memory": self.memory,
            "cpu_time": _seconds(self.cpu_time),
            "timeout": _seconds(self.timeout),
            "max_attempts": self.max_attempts,
            "priority": self.priority,
            "retry": msgspec.to_builtins(self.policy.retry),
            "max_age": _seconds(self.policy.max_age),
            "when_unsure": self.when_unsure,
            **limit_options(self.limit, self.limit_key),
            "said": sorted(self.said),
        }
        # Only where there is something to tell.
        more = {
            "upgrades": self.upgrades.known or None,
            "max_priority": self.max_priority,
            "encrypt": list(self.encrypt) or None,
            "result": None if self.result is True else self.result,
            "sensitive": self.sensitive or None,
            "sample": None if verify is None else verify.share,
            "verify_after": None if verify is None else verify.after.total_seconds(),
            "smoke": None if smoke is None else msgspec.json.decode(smoke),
        }
        options |= {name: value for name, value in more.items() if value is not None}
        return TypeInfo(name=self.name, schema_version=self.version, schema=schema, options=options)


def _seconds(span: timedelta | None) -> float | None:
    return None if span is None else span.total_seconds()


class Registry:
    """The handlers of one queue by type, and what to call when a worker starts and stops."""

    def __init__(self) -> None:
        self._handlers: dict[str, Handler] = {}
        # The handler of a type, if this process has it.
        self.get: Callable[[str], Handler | None] = self._handlers.get
        self._schedules: dict[str, NewSchedule] = {}
        # What several types share, by key.
        self.limits: dict[str, Limit] = {}
        # The release of the application, as far as its code says.
        self.app_version = ""
        # Rises with each change.
        self.revision = 0
        self.on_start: list[Callable[[], object]] = []
        self.on_stop: list[Callable[[], object]] = []

    def add(self, handler: Handler) -> None:
        """Enter a handler; its name must be free."""
        known = self._handlers.setdefault(handler.name, handler)
        if known.function is not handler.function:
            place = f"{known.function.__module__}.{known.function.__qualname__}"
            problem = f"job type {handler.name!r} is already registered by {place}; pass name= to one of them"
            raise InvalidValue(problem, field="name", value=handler.name, allowed="a name that is not taken")
        self._handlers[handler.name] = handler
        self.revision += 1

    def add_schedule(self, new: NewSchedule) -> None:
        """Enter a schedule that the code declares; its name must be free, or of the same type."""
        known = self._schedules.setdefault(new.name, new)
        if known.type != new.type:
            problem = f"schedule {new.name!r} is already declared for {known.type}; choose another name"
            raise InvalidValue(problem, field="name", value=new.name, allowed="a name that is not taken")
        self._schedules[new.name] = new
        self.revision += 1

    def schedules(self) -> tuple[NewSchedule, ...]:
        """Every schedule that the code declares."""
        return tuple(self._schedules.values())

    def add_limit(self, key: str, limit: Limit) -> None:
        """Enter what several types share."""
        self.limits[key] = limit
        self.revision += 1

    def info(self, handler: Handler) -> TypeInfo:
        """What the catalogue tells of a type, with what it shares: servers know of types by it alone."""
        info = handler.info()
        shared = UNLIMITED if handler.limit_key is None else self.limits.get(handler.limit_key, UNLIMITED)
        if not shared.bounds:
            return info
        return msgspec.structs.replace(
            info, options=info.options | {"key_limit": limit_options(shared, None)}
        )

    def names(self, patterns: Iterable[str] = ()) -> tuple[str, ...]:
        """The registered types, sorted; with patterns such as `email.*` only those that match one."""
        wanted = tuple(patterns)
        return tuple(
            name
            for name in sorted(self._handlers)
            if not wanted or any(fnmatch.fnmatchcase(name, pattern) for pattern in wanted)
        )

    def handlers(self) -> tuple[Handler, ...]:
        """Every handler, in the order of registration."""
        return tuple(self._handlers.values())


# --- making handlers ----------------------------------------------------------------------------


class Options(TypedDict, total=False):
    """What a decorator may say about a type; None is the same as left out."""

    name: str
    executor: Executor
    memory: Size
    cpu_time: Duration
    timeout: Duration
    max_attempts: int
    retry: Retry
    rules: Rules
    max_age: Duration
    priority: int
    version: int
    when_unsure: WhenUnsure
    encrypt: Sequence[str]
    concurrency: int
    tenant_concurrency: int
    rate: str
    burst: int
    limit_key: str
    max_priority: int
    sensitive: bool
    result: Keep
    verify: Callable[..., bool | Awaitable[bool]]
    sample: float
    verify_after: Duration
    smoke: Mapping[str, Any]


def make_handler(
    function: Callable[..., Any],
    options: Mapping[str, object] | None = None,
    names: Mapping[str, Any] | None = None,
) -> Handler:
    """A handler from a function and its options, all of them checked; `names` as for Signature."""
    _check_function(function)
    said: dict[str, Any] = {key: value for key, value in (options or {}).items() if value is not None}
    name = checks.check_type(said.pop("name", function.__name__))
    version = checks.check_whole("version", said.get("version", 1), 1, _HIGHEST_VERSION)
    signature = Signature(function, name, names, secret=said.get("encrypt", ()))
    kind, origin = _kind(function, said.get("executor")), origin_of(function)
    if kind == "process" and origin is None:
        problem = (
            "executor='process' needs a function that child processes can import: "
            "define it at the top level of a module"
        )
        raise InvalidValue(problem, field="executor", value=kind, allowed="thread or loop for this function")
    limits = (said.get(each) for each in ("concurrency", "rate", "burst", "tenant_concurrency"))
    return Handler(
        name=name,
        function=function,
        kind=kind,
        memory=_memory(said.get("memory"), kind),
        cpu_time=_cpu_time(said.get("cpu_time"), kind),
        origin=origin,
        signature=signature,
        timeout=checks.check_timeout(said["timeout"]) if "timeout" in said else DEFAULT_TIMEOUT,
        max_attempts=checks.check_max_attempts(said.get("max_attempts", DEFAULT_MAX_ATTEMPTS)),
        priority=checks.check_priority(said.get("priority", DEFAULT_PRIORITY)),
        policy=_policy(said),
        version=version,
        when_unsure=checks.one_of("when_unsure", said.get("when_unsure", "run"), ("run", "stop")),
        upgrades=Upgrades(name, version),
        encrypt=signature.secret,
        limit=make_limit(*limits),
        max_priority=checks.check_max_priority(said["max_priority"]) if "max_priority" in said else None,
        limit_key=checks.check_limit_key(said["limit_key"]) if "limit_key" in said else None,
        sensitive=checks.yes_or_no("sensitive", said.get("sensitive")),
        result=_keep(said.get("result")),
        verify=make_verify(
            said.get("verify"), said.get("sample"), said.get("verify_after"), signature.parameters
        ),
        smoke=_smoke(said.get("smoke"), signature),
        said=frozenset(said),
    )


def shell_handler(*, sent: bool = False) -> Handler:
    """The built-in type that runs commands; the worker knows how. `sent`: also those that came over HTTP."""
    made = make_handler(_command, {"name": SHELL, "version": SENT_SHELL if sent else 1})
    if sent:
        # The payloads are alike: only the workers that may run them differ.
        made.upgrades.add(1, dict)
    return replace(made, kind="shell", origin=None, said=frozenset())


def _command(
    command: _Line | _Program,  # noqa: ARG001 - the parameters are the payload; there is no body to use them
    timeout: _Seconds | None = None,  # noqa: ARG001
    cwd: str | None = None,  # noqa: ARG001
    env: dict[str, str] | None = None,  # noqa: ARG001
) -> None:
    """The payload of a shell job: a line for `sh -c`, or a program and its arguments."""
    raise TypeError("a shell job has no function to call; a worker runs its command")


_Line = Annotated[str, msgspec.Meta(min_length=1)]
_Program = Annotated[list[str], msgspec.Meta(min_length=1)]
_Seconds = Annotated[float, msgspec.Meta(gt=0)]


def _check_function(function: Callable[..., Any]) -> None:
    if not (inspect.isfunction(function) or inspect.ismethod(function)):
        raise must_be("handler", function, "a function made by def or async def")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise must_be("handler", function, "a function without yield: a generator's body would never run")


def _kind(function: Callable[..., Any], executor: Executor | None) -> Kind:
    usual: Executor = "loop" if inspect.iscoroutinefunction(function) else "thread"
    chosen = usual if executor is None else executor
    if chosen not in (usual, "process"):
        raise must_be("executor", executor, f"{usual} or process for this function")
    return chosen


def _smoke(payload: Mapping[str, Any] | None, signature: Signature) -> Mapping[str, Any] | None:
    """A payload that fits, seen now and not when a deployment waits for it."""
    if payload is not None:
        try:
            signature.encode(payload)
        except InvalidPayload as error:
            raise must_be("smoke", payload, f"a payload that the handler takes ({error})") from None
    return payload


def _memory(given: Size | None, kind: Kind) -> int | None:
    if given is None:
        return None
    _check_can_be_limited("memory", given, kind)
    size = parse_size(given, "memory")
    if size < _LEAST_MEMORY:
        raise must_be("memory", given, "at least 16MB, which Python itself takes")
    return size


def _cpu_time(given: Duration | None, kind: Kind) -> timedelta | None:
    if given is None:
        return None
    _check_can_be_limited("cpu_time", given, kind)
    span = parse_duration(given, "cpu_time")
    if not timedelta(0) < span <= LONGEST_TIMEOUT:
        raise must_be("cpu_time", given, "more than 0 and at most 7d")
    return span


def _check_can_be_limited(field: str, value: object, kind: Kind) -> None:
    if kind != "process":
        allowed = 'given together with executor="process": only a process of its own can be limited'
        raise must_be(field, value, allowed)


def _keep(result: object) -> Keep:
    if result is None or isinstance(result, bool):
        return result is not False
    if result == "required":
        return "required"
    allowed = 'True (kept if it can be), False (never kept) or "required" (the job fails without it)'
    raise must_be("result", result, allowed)


def _policy(said: Mapping[str, Any]) -> Policy:
    max_age = parse_duration(said["max_age"], "max_age") if "max_age" in said else None
    if max_age is not None and not timedelta(0) < max_age <= LATEST:
        raise must_be("max_age", said["max_age"], f"more than 0 and at most {LATEST.days}d")
    retry = said.get("retry", Retry())
    if not isinstance(retry, Retry):
        raise must_be("retry", retry, "a Retry, such as Retry(base=30, cap=3600, jitter=15)")
    return Policy(retry, _rules(said.get("rules", {})), max_age)


def _rules(rules: object) -> Rules:
    if not isinstance(rules, Mapping):
        if callable(rules) and not isinstance(rules, type) and not inspect.iscoroutinefunction(rules):
            return rules
        allowed = (
            "a mapping such as {ValueError: 'fatal'}, or a function of the exception that returns retry, "
            "fatal, cancel or None"
        )
        raise must_be("rules", rules, allowed)
    for kind, rule in rules.items():
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise must_be("a key of rules", kind, "an exception class")
        checks.one_of(f"rules[{kind.__name__}]", rule, RULES)
    return MappingProxyType(dict(rules))


_HIGHEST_VERSION = 2**31 - 1
_LEAST_MEMORY = 16 * 2**20
