"""Declare operator actions: one declaration gives the command, the route, the remote call and the button.

    @Action("POST jobs/{id}/discard", bulk=True, danger=True, past="discarded")
    def discard(self, name: JobName, *, tenant: Tenant = None, why: Why = "") -> Acted:

Who may only look may ask for what is a GET, and operators for all else, unless `need` says otherwise. The
first parameter fills the path. `tenant` goes into the query, everything else into the body (into the
query where there is no body).
"""

from __future__ import annotations

import getpass
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from enum import StrEnum
from functools import cached_property, partial, reduce, wraps
from operator import attrgetter, or_
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, ParamSpec, TypeVar, get_args, get_type_hints

import msgspec

from windlass.clock import Clock, SystemClock
from windlass.connect import Front, direct
from windlass.errors import WrongState, must_be
from windlass.store.jobs import STATES, Counts
from windlass.store.store import Store
from windlass.wakeup import Wakeup

if TYPE_CHECKING:
    from windlass.ops.remote import RemoteOps

P = ParamSpec("P")
R = TypeVar("R")
V = TypeVar("V", bound="Verbs")


class Need(StrEnum):
    """The right that a caller must have."""

    # Nothing at all: health, documentation.
    NOTHING = "nothing"
    # To put jobs in, and to see and change those of one's own.
    PRODUCE = "produce"
    # To claim and settle jobs.
    WORK = "work"
    # To see everybody's jobs, types and workers.
    SEE = "see"
    # To see jobs, at least one's own.
    LOOK = "look"
    # To act on jobs, at least on one's own.
    ACT = "act"
    # Every verb of an operator.
    OPERATE = "operate"
    # API keys.
    ADMINISTER = "administer"


class Option(msgspec.Struct, frozen=True):
    """How a parameter is written on the command line, and what it means."""

    help: str
    metavar: str | None = None
    # Else the parameter's name.
    flag: str = ""
    # Its name over HTTP, if that is another one.
    field: str = ""
    # A second flag that stands for a fixed value of the same parameter: (flag, value, help).
    short: tuple[str, str, str] | None = None


Why = Annotated[str, msgspec.Meta(max_length=1000), Option("For the records.", "TEXT")]
Limit = Annotated[
    int,
    msgspec.Meta(ge=1, le=1000),
    Option("How many, 1 to 1000; fewer come, with a `next`, if they are large or not found in time."),
]
Count = Annotated[int, msgspec.Meta(ge=1, le=1000), Option("How many, 1 to 1000.")]
Cursor = Annotated[str | None, Option("The `next` of the page before.")]
TypeName = Annotated[str, Option("", "TYPE")]


@dataclass(frozen=True)
class Parameter:
    """A parameter of an action."""

    name: str
    # Without its annotations, and without None.
    base: Any
    optional: bool
    notes: tuple[Any, ...]
    default: Any

    @property
    def field(self) -> str:
        """Its name over HTTP."""
        return self.option.field or self.name

    @property
    def required(self) -> bool:
        """Whether there is no default."""
        return self.default is inspect.Parameter.empty

    @property
    def option(self) -> Option:
        """How it is written on the command line: the outermost note says so."""
        return next((each for each in self.notes if isinstance(each, Option)), Option(""))

    @property
    def bounds(self) -> msgspec.Meta:
        """Within which bounds it must be."""
        return next((each for each in self.notes if isinstance(each, msgspec.Meta)), msgspec.Meta())

    @classmethod
    def of(cls, name: str, kind: Any, default: Any) -> Parameter:
        """Read a type such as `Annotated[int, Meta(ge=0)] | None`."""
        notes: list[Any] = []
        optional = False
        while True:
            if hasattr(kind, "__metadata__"):
                notes += reversed(kind.__metadata__)
                kind = kind.__origin__
            elif type(None) in get_args(kind):
                optional = True
                kind = reduce(or_, [each for each in get_args(kind) if each is not type(None)])
            else:
                return cls(name, kind, optional, tuple(notes), default)


def parameters_of(function: Callable[..., Any]) -> list[Parameter]:
    """A function's parameters, behind the first one."""
    hints = get_type_hints(function, include_extras=True)
    _, *found = inspect.signature(function).parameters.values()
    return [Parameter.of(each.name, hints[each.name], each.default) for each in found]


@dataclass(eq=False)
class Action:
    """Declares a method of `Verbs` as an action; `route` is its HTTP method and its path below /api/v1."""

    route: str
    _: KW_ONLY
    # Where nothing is said, operators may change things.
    need: Need = Need.SEE
    # Whether it can be done to every job that a filter chooses.
    bulk: bool = False
    danger: bool = False
    # What has become of the job or thing: "cancelled"; may name parameters in braces.
    past: str = ""
    # As in "cannot be cancelled".
    participle: str = ""
    # The words of its command, in braces those that its name gives; empty: it has none.
    command: str = "{}"
    examples: str = ""
    # Names for an answer that is no object: the last one is the answer's, one before it the target's.
    answers: tuple[str, ...] = ()
    status: int = 200
    # Where what it made is found, with fields of the answer in braces.
    location: str = ""
    # What the HTTP contract calls it: pause_type, pause_schedule.
    operation: str = ""
    # The contract's name of the form or document that is made for it, if it is not the usual one.
    schema: str = ""
    # Its route or its command is written by hand; the latter is for all that only look.
    own_route: bool = False
    own_command: bool = False
    # What it refuses about its arguments, as a method that takes them too: done alone to list all problems.
    check: Callable[..., object] | None = None

    def __post_init__(self) -> None:
        self.method, self.path = self.route.split(" ")
        self.on_job = self.path.startswith("jobs/{")
        if self.method == "GET":
            self.own_command = True
        elif self.need is Need.SEE:
            self.need = Need.OPERATE

    def __call__(self, function: Callable[Concatenate[V, P], R]) -> Callable[Concatenate[V, P], R]:
        """The method, done elsewhere if its verbs are remote."""
        self.function: Callable[..., Any] = function
        self.name, nouns = function.__name__, self.path.partition("/")[0]
        # The verbs on operations and schedules are in sets of their own.
        self._within = nouns if nouns in ("operations", "schedules") else ""
        self.command = self.command.format(f"{self._within.removesuffix('s')} {self.name}".strip())
        usual = self.name if "_" in self.name else f"{self.name}_{nouns.removesuffix('s')}"
        self.operation = self.operation or usual
        self.description = inspect.getdoc(function) or ""
        self.summary = self.description.partition("\n")[0].rstrip(".")
        self.participle = self.participle or f"{self.name.removesuffix('e')}ed"
        # The states of jobs that it is for.
        changes_job = self.on_job and self.method != "GET"
        self.states = STATES.get(self.name, STATES["edit"]) if changes_job else ()
        ACTIONS[self.command or self.name] = self

        @wraps(function)
        def run(verbs: V, /, *args: P.args, **kwargs: P.kwargs) -> R:
            try:
                if verbs.remote is None:
                    return function(verbs, *args, **kwargs)
                answer: R = verbs.remote.do(self, self.bound(args, kwargs))
            except WrongState as error:
                error.named(self.name)
                raise
            return answer

        return run

    @cached_property
    def returns(self) -> Any:
        """The type of its answer."""
        return get_type_hints(self.function, include_extras=True)["return"]

    @cached_property
    def target(self) -> Parameter | None:
        """The parameter that fills the path."""
        return self.everything[0] if "{" in self.path else None

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """What it takes besides its target and the tenant."""
        return tuple(each for each in self.everything if each is not self.target and each.name != "tenant")

    @cached_property
    def takes_tenant(self) -> bool:
        """Whether `tenant` says whose key the job's name is."""
        return any(each.name == "tenant" for each in self.everything)

    @cached_property
    def everything(self) -> list[Parameter]:
        """All its parameters."""
        return parameters_of(self.function)

    def document(self, target: str | None, answer: Any) -> Any:
        """The answer as an object."""
        if not self.answers:
            return answer
        return dict(zip(self.answers, (target, answer)[-len(self.answers) :], strict=True))

    def bound(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments by name."""
        found = inspect.signature(self.function).bind(None, *args, **kwargs).arguments
        return {each.name: found[each.name] for each in self.everything if each.name in found}

    def of(self, ops: Verbs) -> Callable[..., Any]:
        """The action as a method of these verbs."""
        method: Callable[..., Any] = attrgetter(f"{self._within}.{self.name}".strip("."))(ops)
        return method

    def check_of(self, ops: Verbs) -> Callable[..., object]:
        """Its check as a method of these verbs."""
        return partial(self.check or (lambda *_, **__: None), self.of(ops).__self__)  # type: ignore[attr-defined]

    def told(self, arguments: Mapping[str, Any]) -> str:
        """What has become of it, with the values that were given."""
        return self.past.format_map(dict(arguments))


# By the words of their commands, in the order of declaration.
ACTIONS: dict[str, Action] = {}


@dataclass(eq=False)
class Verbs:
    """What every set of verbs has: a store, a name for the records, and workers to wake."""

    front: Front
    _: KW_ONLY
    wakeup: Wakeup | None = None
    # Who acts, for the records; else the operating system's user.
    by: str | None = None
    clock: Clock = field(default_factory=SystemClock)
    # What counts the jobs, if it is not the store each time.
    counts: Callable[[], Counts] | None = None
    # Names a request that may be sent twice: it is carried out once.
    request_id: str = ""
    # The request came over HTTP: commands of shell jobs in it run under --shell alone.
    sent: bool = False
    # What the caller may do, and the only tenant whose jobs it may see; left out: everything.
    may: Callable[[Need], bool] = lambda _: True
    tenant: str | None = None
    # Given: actions are done there, and not on the store.
    remote: RemoteOps | None = field(default=None, init=False)

    @property
    def store(self) -> Store:
        """The store itself; Refused where only a server can be reached."""
        return direct(self.front)

    @cached_property
    def _who(self) -> str:
        """Who acts, for the records."""
        return self.by or _system_user()

    def _wake(self) -> None:
        if self.wakeup is not None:
            self.wakeup.notify()


def changes() -> list[Action]:
    """The actions that change something."""
    return [each for each in ACTIONS.values() if each.method != "GET"]


def bulk_actions() -> dict[str, Action]:
    """The actions that can be done to many jobs, by name."""
    return {each.name: each for each in ACTIONS.values() if each.bulk}


def bulk_action(name: str) -> Action:
    """The action of that name, if it can be done to many jobs."""
    known = bulk_actions()
    if name not in known:
        raise must_be("action", name, "one of " + ", ".join(known))
    return known[name]


def _system_user() -> str:
    """Who runs this process, as the system knows it: variables such as LOGNAME can say anything."""
    if not hasattr(os, "getuid"):
        return getpass.getuser()
    import pwd  # noqa: PLC0415 - not there on Windows

    uid = os.getuid()
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:  # a container's user need not have a name
        name = "unknown"
    return f"{name} (uid {uid})"
