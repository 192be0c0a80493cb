"""What does a handler take? Read from its annotations, once, when it is registered."""

from __future__ import annotations

import inspect
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from types import NoneType
from typing import Any, get_args, get_type_hints

import msgspec

from windlass.context import Context
from windlass.errors import InvalidPayload, must_be
from windlass.payload import models
from windlass.payload.faithful import PLAIN, Unfaithful, check_faithful
from windlass.payload.schema import schema_of
from windlass.payload.text import encode, refused
from windlass.payload.validate import refusal

Names = Mapping[str, Any]


class Signature:
    """A handler's parameters as the type of its payload. Refuses what JSON cannot carry when it is made."""

    def __init__(
        self,
        function: Callable[..., Any],
        job_type: str,
        names: Names | None = None,
        *,
        secret: Sequence[str] = (),
    ) -> None:
        """Read the annotations; `names` are those that stand around the function, for annotations in text.

        What stands in the `secret` fields is never shown in an error.
        """
        hints = {
            parameter.name: _hint(function, parameter, job_type, names or {})
            for parameter in inspect.signature(function).parameters.values()
        }
        contexts = [name for name, hint in hints.items() if _is_context(hint)]
        if len(contexts) > 1:
            raise must_be(f"handler {job_type}", contexts, "a function with at most one Context")
        self.context: str | None = contexts[0] if contexts else None
        self.context_first = list(hints)[:1] == contexts[:1] != []
        self._job_type = job_type
        self._bare = _bare(inspect.signature(function), hints, self.context)
        # An ordinary call is told by its names alone, at a tenth of what `inspect` takes to bind it.
        parameters = self._bare.parameters.values()
        self._ordered = tuple(self._bare.parameters)
        self._names = frozenset(self._ordered)
        self._positional = [each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
        # How many make a whole call without names; -1 if none can.
        self._all_positional = len(self._ordered) if len(self._positional) == len(self._ordered) else -1
        self._required = frozenset(each.name for each in parameters if each.default is each.empty)
        self.secret = _known_fields(secret, self._bare, job_type)
        self._decoder = msgspec.json.Decoder(_payload_type(self._bare), dec_hook=models.loaded)
        self.schema: dict[str, Any] = _schema(self._decoder.type, f"handler {job_type}", self._bare)
        _add_defaults(self.schema["properties"], self._bare)

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of a payload's fields."""
        return self._ordered

    def bind(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """The arguments of a call by name; defaults are left to the handler that will run."""
        if not kwargs and len(args) == self._all_positional:
            return dict(zip(self._positional, args, strict=True))
        arguments = dict(zip(self._positional, args, strict=False)) | kwargs
        if len(arguments) == len(args) + len(kwargs) and self._required <= arguments.keys() <= self._names:
            return arguments
        try:
            return self._bare.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise refused(self._job_type, f"{error}; it takes {self._bare}") from None

    def encode(self, arguments: Mapping[str, Any]) -> bytes:
        """Arguments as a payload that the handler's decoder is sure to take, or InvalidPayload."""
        # A dict is told at once; whatever else may be a mapping takes a while to ask.
        if not isinstance(arguments, (dict, Mapping)):
            raise refused(self._job_type, must_be("payload", arguments, "a JSON object"))
        data = encode(arguments, self._job_type)
        try:
            got = self._read(data)
        except InvalidPayload:
            # NaN is null in JSON: say which number was wrong rather than that null is none.
            self._check_arrival(arguments, arguments.__getitem__)
            raise
        self._check_arrival(arguments, lambda name: getattr(got, name))
        return data

    def _check_arrival(self, arguments: Mapping[str, Any], twin: Callable[[str], Any]) -> None:
        try:
            for name, value in arguments.items():
                if type(value) not in PLAIN:
                    check_faithful(value, twin(name), f"payload.{name}")
        except Unfaithful as error:
            raise refused(self._job_type, error.problem) from None

    def decode(self, payload: bytes | msgspec.Raw) -> dict[str, Any]:
        """The arguments in a payload, those that it leaves out left out, or InvalidPayload."""
        found = self._read(payload)
        return {name: value for name in self._ordered if (value := getattr(found, name)) is not _LEFT_OUT}

    def _read(self, payload: bytes | msgspec.Raw) -> msgspec.Struct:
        try:
            return self._decoder.decode(payload)
        except Exception as error:  # noqa: BLE001 # wall: user code in a payload class's __post_init__
            raise self._refusal(payload, error) from None

    def _refusal(self, payload: bytes | msgspec.Raw, error: Exception) -> InvalidPayload:
        try:
            known = refusal(self.schema, msgspec.json.decode(payload), self._job_type, self.secret)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return refused(self._job_type, f"payload must be valid JSON ({error})")
        if known is not None:
            return known
        hidden = type(error).__name__ if self.secret else error
        return refused(self._job_type, "payload does not fit: " + " ".join(str(hidden).split()))


def _hint(function: Callable[..., Any], parameter: inspect.Parameter, job_type: str, names: Names) -> Any:
    place = f"parameter {parameter.name} of handler {job_type}"
    if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
        raise must_be(place, str(parameter), f"a plain parameter, not {parameter.kind.description}")
    if parameter.annotation is parameter.empty:
        return Any
    hint = _resolved(function, parameter, place, names)
    if not _is_context(hint):
        _check_can_be_sent(hint, place)
    return hint


def _resolved(function: Callable[..., Any], parameter: inspect.Parameter, place: str, names: Names) -> Any:
    space = inspect.unwrap(function).__globals__
    # Names imported for type checkers only are not there at run time; ours is the likeliest of them.
    known = ChainMap(dict(names), space, {"Context": Context})

    def carrier() -> None: ...

    carrier.__annotations__ = {"it": parameter.annotation}
    try:
        return get_type_hints(carrier, globalns=space, localns=known, include_extras=True)["it"]
    except NameError as error:
        allowed = f"annotated with names known at run time ({error}; is it imported for type checkers only?)"
        raise must_be(place, parameter.annotation, allowed) from None


def _known_fields(names: Sequence[str], signature: inspect.Signature, job_type: str) -> tuple[str, ...]:
    if isinstance(names, str) or not all(name in signature.parameters for name in names):
        allowed = f"a list of the handler's parameters ({', '.join(signature.parameters) or 'none'})"
        raise must_be(f"encrypt of handler {job_type}", names, allowed)
    return tuple(names)


def _is_context(hint: Any) -> bool:
    return hint is Context or set(get_args(hint)) == {Context, NoneType}


def _check_can_be_sent(hint: Any, place: str) -> None:
    _schema(_struct([("it", hint)]), place, hint)


def _schema(payload: type[msgspec.Struct], place: str, shown: object) -> dict[str, Any]:
    try:
        msgspec.json.Decoder(payload)
        return schema_of(payload)
    except (TypeError, NameError, ValueError, AttributeError) as error:
        reason = str(error).splitlines()[-1]
        raise must_be(place, shown, f"annotated with types that JSON can carry ({reason})") from None


def _payload_type(signature: inspect.Signature) -> type[msgspec.Struct]:
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    for name, parameter in signature.parameters.items():
        hint = Any if parameter.annotation is parameter.empty else parameter.annotation
        if parameter.default is parameter.empty:
            fields.append((name, hint))
        else:
            fields.append((name, hint, msgspec.field(default_factory=_left_out)))
    return _struct(fields)


def _struct(fields: list[Any]) -> type[msgspec.Struct]:
    return msgspec.defstruct("Payload", fields, kw_only=True, forbid_unknown_fields=True)


def _bare(signature: inspect.Signature, hints: Mapping[str, Any], context: str | None) -> inspect.Signature:
    """What callers give: the context is not theirs to give."""
    parameters = [
        parameter if parameter.annotation is parameter.empty else parameter.replace(annotation=hints[name])
        for name, parameter in signature.parameters.items()
        if name != context
    ]
    return inspect.Signature(parameters)


def _add_defaults(properties: dict[str, Any], signature: inspect.Signature) -> None:
    """For whoever reads the schema; what cannot be shown as JSON is left out."""
    for name, parameter in signature.parameters.items():
        if parameter.default is not parameter.empty:
            try:
                properties[name]["default"] = msgspec.json.decode(msgspec.json.encode(parameter.default))
            except (TypeError, ValueError):
                continue


def _left_out() -> Any:
    return _LEFT_OUT


_LEFT_OUT = object()
