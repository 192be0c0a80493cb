"""Build the HTTP routes of declared actions, and the list of actions that the dashboard reads."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any, Literal, TypeVar, get_type_hints

import msgspec
from msgspec import Meta

from windlass.checks import read_moment
from windlass.duration import parse_duration
from windlass.errors import must_be
from windlass.job import LATEST, JobState
from windlass.ops.actions import ACTIONS, Action, Parameter, bulk_action, bulk_actions, changes
from windlass.ops.document import plain
from windlass.server.call import Call
from windlass.server.identity import Need, check_own_operation, sent_payload
from windlass.server.reply import Reply
from windlass.server.routes import NAMED, Route, look
from windlass.server.schemas import NOTHING, Form, Moment, Object, Span, WhyForm
from windlass.server.schemas.actions import ActionForm

F = TypeVar("F", bound=Form)


def action_routes() -> tuple[Route, ...]:
    """A route for each method and path; of actions that share one, the first declared takes all fields."""
    first = {(each.method, each.path): each for each in reversed(ACTIONS.values())}
    built = [each for each in ACTIONS.values() if first[each.method, each.path] is each]
    return tuple(_route(each) for each in built if not each.own_route)


def _route(declared: Action) -> Route:
    form = form_of(declared) if declared.method in _WITH_BODY else None
    on_operation = declared.path.startswith("operations/")

    async def answer(call: Call) -> Reply:
        said = None if form is None else await call.body(form)
        job = await call.job() if declared.on_job else None
        if on_operation:
            await call.run(check_own_operation, call)
        target = job.id if job is not None else next(iter(call.path.values()), None)
        arguments = _from_query(declared, call) if said is None else read_arguments(declared, said)
        if job is not None and "payload" in arguments:
            arguments["payload"] = sent_payload(call, job.type, arguments["payload"])
        ops = call.parts.ops(call.identity) if said is None else call.ops(said)
        done = await call.run(declared.of(ops), *(() if target is None else (target,)), **arguments)
        if declared.need is Need.ADMINISTER and declared.method != "GET":
            # Who may do what has changed.
            await call.run(call.parts.keyring.look)
        document = plain(declared.document(target, done))
        made = declared.location.format_map(document) if declared.location else ""
        headers = {b"location": f"/api/v1/{made}".encode()} if made else {}
        return Reply(declared.status, document, headers=headers)

    answer.__name__, answer.__doc__ = declared.operation, declared.description
    return Route(
        method=declared.method,
        path=f"/api/v1/{declared.path}",
        answer=answer,
        need=declared.need,
        summary=declared.summary,
        takes=form,
        gives={declared.status: _document_of(declared)},
        query=_query_of(declared) if form is None else NAMED if declared.takes_tenant else {},
        refuses=_refusals(declared),
        whole=not (declared.on_job or on_operation),
    )


_WITH_BODY = ("POST", "PUT", "PATCH")


def _refusals(declared: Action) -> tuple[int, ...]:
    named = () if declared.target is None else (404,)
    if declared.method == "GET":
        return named
    return (*named, 409, 413, 415) if declared.method in _WITH_BODY else (*named, 409)


def _document_of(declared: Action) -> type[msgspec.Struct]:
    """What an action answers with; an answer that is no object is put into one."""
    if not declared.answers:
        kind: type[msgspec.Struct] = declared.returns
        return kind
    *target, last = declared.answers
    name = "".join(part.title() for part in declared.operation.split("_"))
    fields = [*((each, str) for each in target), (last, declared.returns)]
    return msgspec.defstruct(f"{name}Document", fields, namespace={"__doc__": declared.summary + "."})


# --- what a query says ---


def _query_of(declared: Action) -> dict[str, str]:
    named = NAMED if declared.takes_tenant else {}
    return named | {each.field: each.option.help for each in declared.parameters}


def _from_query(declared: Action, call: Call) -> dict[str, Any]:
    """An action's arguments from the query; what is left out has its default."""
    found = {each.name: _asked(each, call) for each in declared.parameters if each.field in call.query}
    if declared.takes_tenant and not declared.on_job:
        found["tenant"] = call.one("tenant")
    return found


def _asked(each: Parameter, call: Call) -> Any:
    name = each.field
    if each.base is int:
        return call.whole(name, each.default, int(each.bounds.ge or 0), int(each.bounds.le or 0))
    if each.base == Sequence[str]:
        return call.many(name)
    text = call.one(name)
    if isinstance(each.base, type) and issubclass(each.base, StrEnum):
        if text not in set(each.base):
            raise must_be(name, text, "one of " + ", ".join(each.base))
        return each.base(text)
    return _value(each, text)


# --- what a request says ---


def form_of(declared: Action) -> type[Form]:
    """What the body of an action's request may hold: a field for each parameter."""
    fields = [field for each in declared.parameters if each.name != "why" for field in _fields(each)]
    if not fields:
        return WhyForm
    name = "".join(part.title() for part in declared.name.split("_"))
    return _form(f"{name}Form", fields, WhyForm, declared.summary + ".")


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


def _fields(each: Parameter) -> list[Any]:
    """A field, or those of a struct, put beside the others."""
    if _is_struct(each):
        return [_field(inner) for inner in _inner(each)]
    return [_field(each)]


def _is_struct(each: Parameter) -> bool:
    return isinstance(each.base, type) and issubclass(each.base, msgspec.Struct)


def _inner(each: Parameter) -> list[Parameter]:
    hints = get_type_hints(each.base, include_extras=True)
    missing = inspect.Parameter.empty
    return [
        Parameter.of(field.encode_name, hints[field.name], missing if field.required else field.default)
        for field in msgspec.structs.fields(each.base)
    ]


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
    found: dict[str, Any] = {}
    for each in declared.parameters:
        if _is_struct(each):
            fields = {inner.name: _value(inner, getattr(said, inner.name)) for inner in _inner(each)}
            found[each.name] = msgspec.convert(fields, each.base)
        elif hasattr(said, each.name):
            found[each.name] = _value(each, getattr(said, each.name))
    return found


def _value(each: Parameter, value: Any) -> Any:
    if value is None:
        return None
    if each.base is timedelta:
        return parse_duration(value, each.field, LATEST)
    return read_moment(value, each.field) if each.base is datetime else value


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
    return Reply(200, ActionsDocument(actions=[_described(each) for each in changes()]))


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
