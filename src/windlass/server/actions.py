"""Build the HTTP routes of declared actions, and the list of actions that the dashboard reads."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal, TypeVar, get_type_hints, is_typeddict

import msgspec
from msgspec import Meta

from windlass.checks import Problems
from windlass.duration import Duration
from windlass.errors import InvalidValue, must_be
from windlass.job import Job, JobState
from windlass.ops.actions import ACTIONS, Action, Need, Parameter, bulk_action, bulk_actions, changes
from windlass.ops.document import Moment, Object, Span, plain
from windlass.server.call import Call
from windlass.server.forms import read_value
from windlass.server.identity import check_type_allowed
from windlass.server.routes import Reply, Tenant, route
from windlass.server.schemas import NOTHING, ActionForm, Form, WhyForm

F = TypeVar("F", bound=Form)


def _declare(declared: Action) -> None:
    """Declare the route of an action."""
    form = form_of(declared) if declared.method in _WITH_BODY else None
    check_rights = declared.need is Need.ADMINISTER and declared.method != "GET"

    async def answer(call: Call, tenant: str | None = None, **arguments: Any) -> Reply:
        problems = Problems()
        said = None if form is None else await call.body(form, problems)
        job = await call.job(tenant) if declared.on_job else None
        if declared.takes_tenant and job is None:
            arguments["tenant"] = tenant
        ops = call.ops(said)
        target = job.id if job is not None else next(iter(call.path.values()), None)
        named = () if target is None else (target,)
        if said is not None:
            arguments = read_arguments(declared, said, problems)
            _check_type(call, job, said, arguments)
            if problems.found and declared.check is not None:
                with problems:
                    await call.run(declared.check_of(ops), *named, **arguments)
            problems.check()
        done = await call.run(declared.of(ops), *named, **arguments)
        if check_rights:
            # Who may do what has changed.
            await call.run(call.parts.keyring.look)
        document = plain(declared.document(target, done))
        made = declared.location.format_map(document) if declared.location else ""
        headers = {b"location": f"/api/v1/{made}".encode()} if made else {}
        return Reply(declared.status, document, headers=headers)

    answer.__name__, answer.__doc__ = declared.operation, declared.description
    query = () if form is not None else declared.parameters
    missing = () if declared.target is None else (404,)
    route(
        f"{declared.method} {declared.path}",
        declared.summary,
        {declared.status: _document_of(declared)},
        takes=form,
        need=declared.need,
        query=(Parameter.of("tenant", Tenant, None), *query) if declared.takes_tenant else query,
        refuses=(
            *missing,
            *(() if declared.method == "GET" and not declared.on_job else (409,)),
            *(() if form is None else (413, 415)),
        ),
        whole=not (declared.on_job or declared.path.startswith("operations")),
    )(answer)


def _check_type(call: Call, job: Job | None, said: Form, arguments: dict[str, Any]) -> None:
    """Refuse who may not say what jobs of a type do."""
    if job is not None and arguments.get("payload") is not None:
        check_type_allowed(call, job.type)
    elif getattr(said, "type", ""):
        check_type_allowed(call, getattr(said, "type", ""))


_WITH_BODY = ("POST", "PUT", "PATCH")


def _document_of(declared: Action) -> type[msgspec.Struct]:
    """What an action answers with; an answer that is no object is put into one."""
    if not declared.answers:
        kind: type[msgspec.Struct] = declared.returns
        return kind
    *target, last = declared.answers
    name = declared.schema or "".join(part.title() for part in declared.operation.split("_")) + "Document"
    fields = [*((each, str) for each in target), (last, declared.returns)]
    return msgspec.defstruct(name, fields, namespace={"__doc__": declared.summary + "."})


# --- what a request says ---


def form_of(declared: Action) -> type[Form]:
    """What the body of an action's request may hold: a field for each parameter."""
    fields = [_field(field) for each in declared.parameters if each.name != "why" for field in _leaves(each)]
    if not fields:
        return WhyForm
    name = declared.schema or "".join(part.title() for part in declared.name.split("_")) + "Form"
    return _form(name, fields, WhyForm, declared.summary + ".")


def _form(name: str, fields: list[Any], base: type[F], meaning: str) -> type[F]:
    facts = {"__doc__": meaning}
    form: Any = msgspec.defstruct(name, fields, bases=(base,), namespace=facts, frozen=True, kw_only=True)
    made: type[F] = form
    return made


def _inner(each: Parameter) -> dict[str, Parameter]:
    """The fields of a parameter that is a struct or TypedDict: over HTTP they are beside the others."""
    base = each.base
    if is_typeddict(base):
        fields = get_type_hints(base, include_extras=True)
        return {name: Parameter.of(name, kind, None) for name, kind in fields.items()}
    if not (isinstance(base, type) and issubclass(base, msgspec.Struct)):
        return {}
    hints, missing = get_type_hints(base, include_extras=True), inspect.Parameter.empty
    return {
        field.name: Parameter.of(
            field.encode_name, hints[field.name], missing if field.required else field.default
        )
        for field in msgspec.structs.fields(base)
    }


def _leaves(each: Parameter) -> list[Parameter]:
    return [leaf for part in _inner(each).values() for leaf in _leaves(part)] or [each]


def _field(each: Parameter) -> Any:
    kind: Any = _WIRE.get(each.base, each.base)
    for note in each.notes:
        if isinstance(note, Meta):
            kind = Annotated[kind, note]
    if each.base == _OBJECT:
        return each.name, kind, msgspec.field(default_factory=lambda: NOTHING)
    if each.option.help and each.base not in _WIRE:
        kind = Annotated[kind, Meta(description=each.option.help)]
    if each.required:
        return each.name, kind
    return each.name, kind | None if each.optional else kind, each.default


_OBJECT = Mapping[str, Any]
# What is read by us: a payload as it was sent, and texts such as 10m.
_WIRE: dict[Any, Any] = {timedelta: Span, Duration: Span, datetime: Moment, _OBJECT: Object}


def read_arguments(declared: Action, said: Form, problems: Problems) -> dict[str, Any]:
    """An action's arguments from the body of its request."""
    known = [each for each in declared.parameters if hasattr(said, _leaves(each)[0].name)]
    return {each.name: _read(each, said, problems) for each in known}


def _read(each: Parameter, said: Form, problems: Problems) -> Any:
    inner = {name: _read(part, said, problems) for name, part in _inner(each).items()}
    if inner:
        return each.base(**{name: value for name, value in inner.items() if value is not None})
    with problems:
        return read_value(each, getattr(said, each.name))
    return None


# --- many jobs at once ---


def _bulk_parameters() -> list[Parameter]:
    """What single actions take besides; each may be left out, since the others do not take it."""
    found = {
        each.name: replace(each, optional=True, default=None) if each.required else each
        for declared in bulk_actions().values()
        for each in declared.parameters
        if each.name != "why" and each.base != _OBJECT
    }
    return list(found.values())


BulkActionForm = _form(
    "ActionForm",
    [("action", Literal[tuple(bulk_actions())]), *map(_field, _bulk_parameters())],
    ActionForm,
    ActionForm.__doc__ or "",
)


def bulk_arguments(said: ActionForm, problems: Problems) -> dict[str, Any]:
    """The action's own arguments from a request for many jobs."""
    if not said.action:
        return {}
    declared = bulk_action(said.action)
    taken = {each.name: each for each in declared.parameters}
    for each in _bulk_parameters():
        value = getattr(said, each.name)
        with problems:
            if each.name not in taken and value != each.default:
                raise must_be(each.name, value, f"left out for {said.action}")
            if each.name in taken and taken[each.name].required and value is None:
                words = f"{each.name} is missing: {said.action} needs it"
                raise InvalidValue(words, field=each.name, value=None, allowed=f"given for {said.action}")
    arguments = read_arguments(declared, said, problems)
    with problems:
        if said.action == "reschedule" and (said.delay is None) == (said.run_at is None):  # type: ignore[attr-defined]
            words = "reschedule needs either delay or run_at, and not both"
            raise InvalidValue(words, field="delay", value=None, allowed="given, or else run_at")
    arguments.pop("why", None)
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


@route("GET actions", "What operators can do", ActionsDocument, need=Need.LOOK)
async def list_actions(call: Call) -> Reply:  # noqa: ARG001 - the same for everybody
    """What operators can do: path, right, states, words for people. Commands and buttons are made of it."""
    return Reply(200, ActionsDocument(actions=[_described(each) for each in changes()]))


def _described(declared: Action) -> ActionDocument:
    facts = {
        name: getattr(declared, name) for name in ActionDocument.__struct_fields__ if hasattr(declared, name)
    }
    fields = [_described_field(each) for each in declared.parameters]
    return ActionDocument(**facts, explained=declared.description, fields=fields)


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
    _OBJECT: "json",
}
# Of actions that share a method and path, the first declared takes all fields.
for _each in reversed({(each.method, each.path): each for each in reversed(ACTIONS.values())}.values()):
    if not _each.own_route:
        _declare(_each)
