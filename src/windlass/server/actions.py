"""Build the HTTP routes of declared actions, and the list of actions that the dashboard reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from windlass.checks import read_moment
from windlass.duration import parse_duration
from windlass.errors import must_be
from windlass.job import LATEST, JobState
from windlass.ops.actions import ACTIONS, Action, Parameter, bulk_action, bulk_actions
from windlass.server.call import Call
from windlass.server.identity import Need, check_own_operation, sent_payload
from windlass.server.reply import Reply
from windlass.server.routes import NAMED, Route, look, verb
from windlass.server.schemas import NOTHING, Form, Moment, Object, Span, WhyForm
from windlass.server.schemas.actions import ActionForm

F = TypeVar("F", bound=Form)


def action_routes() -> tuple[Route, ...]:
    """A route for each method and path; of actions that share one, the first declared takes all fields."""
    first = {(each.method, each.path): each for each in reversed(ACTIONS.values())}
    return tuple(_route(each) for each in ACTIONS.values() if first[each.method, each.path] is each)


def _route(declared: Action) -> Route:
    form, on_operation = form_of(declared), declared.path.startswith("operations/")

    async def answer(call: Call) -> Reply:
        said = await call.body(form)
        arguments = read_arguments(declared, said)
        if on_operation:
            await call.run(check_own_operation, call)
            return Reply(200, await call.run(declared.of(call.ops(said)), call.path["id"], **arguments))
        job = await call.job()
        if "payload" in arguments:
            arguments["payload"] = sent_payload(call, job.type, arguments["payload"])
        return Reply(200, await call.run(declared.of(call.ops(said)), job.id, **arguments))

    answer.__name__, answer.__doc__ = declared.operation, declared.description
    return verb(
        declared.path,
        answer,
        declared.summary,
        form,
        {200: declared.returns},
        method=declared.method,
        need=declared.need,
        query=NAMED if declared.takes_tenant else {},
        whole=not (declared.on_job or on_operation),
    )


# --- what a request says ---


def form_of(declared: Action) -> type[Form]:
    """What the body of an action's request may hold: a field for each parameter."""
    fields = [_field(each) for each in declared.parameters if each.name != "why"]
    if not fields:
        return WhyForm
    return _form(f"{declared.name.title()}Form", fields, WhyForm, declared.summary + ".")


def _form(name: str, fields: list[Any], base: type[F], meaning: str) -> type[F]:
    made: Any = msgspec.defstruct(
        name,
        fields,
        bases=(base,),
        namespace={"__doc__": meaning},
        frozen=True,
        kw_only=True,
        forbid_unknown_fields=True,
    )
    form: type[F] = made
    return form


def _field(each: Parameter) -> Any:
    if each.base == Mapping[str, Any]:
        return each.name, Object, msgspec.field(default_factory=lambda: NOTHING)
    kind: Any = _WIRE.get(each.base, each.base)
    for note in each.notes:
        if isinstance(note, Meta):
            kind = Annotated[kind, note]
    if each.option.help and each.base not in _WIRE:
        kind = Annotated[kind, Meta(description=each.option.help)]
    if each.required:
        return each.name, kind
    return each.name, kind | None if each.optional else kind, each.default


# Read by us, so that texts such as 10m and dates alone will do, as on the command line.
_WIRE = {timedelta: Span, datetime: Moment}


def read_arguments(declared: Action, said: Form) -> dict[str, Any]:
    """An action's arguments from the body of its request."""
    return {
        each.name: _value(each, getattr(said, each.name))
        for each in declared.parameters
        if hasattr(said, each.name)
    }


def _value(each: Parameter, value: Any) -> Any:
    if value is None:
        return None
    if each.base is timedelta:
        return parse_duration(value, each.name, LATEST)
    return read_moment(value, each.name) if each.base is datetime else value


# --- many jobs at once ---


def _bulk_parameters() -> list[Parameter]:
    """What single actions take besides; each may be left out, since the others do not take it."""
    found = {
        each.name: each._replace(optional=True, default=None) if each.required else each
        for declared in bulk_actions().values()
        for each in declared.parameters
        if each.name != "why" and each.base != Mapping[str, Any]
    }
    return list(found.values())


def _one_of(names: Iterable[str]) -> Any:
    made: Any = Literal
    return made[tuple(names)]


BulkActionForm = _form(
    "ActionForm",
    [
        ("action", _one_of(bulk_actions())),
        *map(_field, _bulk_parameters()),
    ],
    ActionForm,
    ActionForm.__doc__ or "",
)


def bulk_arguments(said: ActionForm) -> dict[str, Any]:
    """The action's own arguments from a request for many jobs."""
    declared = bulk_action(said.action)
    taken = {each.name: each for each in declared.parameters}
    for each in _bulk_parameters():
        value = getattr(said, each.name)
        if each.name not in taken and value != each.default:
            raise must_be(each.name, value, f"left out for {said.action}")
        if each.name in taken and taken[each.name].required and value is None:
            raise must_be(each.name, value, f"given for {said.action}")
    arguments = read_arguments(declared, said)
    del arguments["why"]
    return arguments


# --- what the dashboard reads ---


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """What a person may give with an action."""

    name: str
    kind: Literal["text", "number", "flag", "duration", "time", "json"]
    label: str
    required: bool
    minimum: float | None = None
    maximum: float | None = None


class ActionDocument(msgspec.Struct, frozen=True, kw_only=True):
    """An action: where it is done, who may do it, for jobs in which states, and what it means."""

    name: str
    command: str
    method: str
    path: str
    need: Need
    states: tuple[JobState, ...]
    bulk: bool
    danger: bool
    past: str
    explained: str
    fields: list[Field]


class ActionsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Every action of an operator."""

    actions: list[ActionDocument]


async def list_actions(call: Call) -> Reply:  # noqa: ARG001 - the same for everybody
    """What operators can do: path, right, states, words for people. Commands and buttons are made of it."""
    return Reply(200, ActionsDocument(actions=[_described(each) for each in ACTIONS.values()]))


def _described(declared: Action) -> ActionDocument:
    return ActionDocument(
        name=declared.name,
        command=declared.command,
        method=declared.method,
        path=declared.path,
        need=declared.need,
        states=declared.states,
        bulk=declared.bulk,
        danger=declared.danger,
        past=declared.past,
        explained=declared.description,
        fields=[_described_field(each) for each in declared.parameters],
    )


def _described_field(each: Parameter) -> Field:
    return Field(
        name=each.name,
        kind=_KINDS.get(each.base, "text"),
        label=each.option.help,
        required=each.required,
        minimum=each.bounds.ge,
        maximum=each.bounds.le,
    )


_KINDS: dict[Any, Any] = {
    bool: "flag",
    int: "number",
    float: "number",
    timedelta: "duration",
    datetime: "time",
    Mapping[str, Any]: "json",
}
ROUTES = (
    *action_routes(),
    look("actions", list_actions, "What operators can do", ActionsDocument, need=Need.LOOK, whole=False),
)
