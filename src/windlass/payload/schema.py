"""The JSON Schema of a payload's type, which says exactly what the typed decoder takes.

msgspec writes the schema, and says less than its decoder checks in some places and more in others. Here it
is made to say the same, because producers without the handler are judged by the schema alone. Models of
pydantic describe, dump and validate themselves, without an import of pydantic.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import inspect as kinds

_Class = kinds.StructType | kinds.TypedDictType | kinds.DataclassType | kinds.NamedTupleType


def schema_of(payload: type[msgspec.Struct]) -> dict[str, Any]:
    """The JSON Schema of a payload's type; its parts stand below `$defs`."""
    classes: dict[Any, _Class] = {}
    # Classes that describe themselves.
    known: set[Any] = set()
    _collect(kinds.type_info(payload), classes, known)
    try:
        references, definitions = msgspec.json.schema_components(classes, schema_hook=_model_reference)
    except KeyError as error:
        raise TypeError(f"two different classes are called {error}") from None
    names = [reference["$ref"].rpartition("/")[2] for reference in references]
    for name, kind in zip(names, classes.values(), strict=True):
        _complete_class(kind, definitions[name])
    root: dict[str, Any] = definitions.pop(names[0])
    for kind in known:
        for name, schema in _model_definitions(kind).items():
            if definitions.setdefault(name, schema) != schema:
                raise TypeError(f"two different classes are called {name!r}")
    del root["title"]
    if definitions:
        root["$defs"] = definitions
    return root


def _collect(kind: kinds.Type, classes: dict[Any, _Class], known: set[Any]) -> None:
    """Find every class, itself first."""
    kind = _bare(kind)
    match kind:
        case kinds.StructType() | kinds.TypedDictType() | kinds.DataclassType() | kinds.NamedTupleType():
            if kind.cls not in classes:
                classes[kind.cls] = kind
                for field in kind.fields:
                    _collect(field.type, classes, known)
        case kinds.CollectionType(item_type=item):
            _collect(item, classes, known)
        case kinds.TupleType(item_types=parts) | kinds.UnionType(types=parts):
            for part in parts:
                _collect(part, classes, known)
        case kinds.DictType(value_type=value):
            _collect(value, classes, known)
        case kinds.CustomType(cls=cls):
            known.add(cls)
        case _:
            pass


def _complete_class(kind: _Class, node: dict[str, Any]) -> None:
    if "prefixItems" in node:
        fields = node["prefixItems"][-len(kind.fields) :]
    else:
        fields = [node["properties"][field.encode_name] for field in kind.fields]
    for field, part in zip(kind.fields, fields, strict=True):
        _complete(field.type, part)


def _complete(kind: kinds.Type, node: dict[str, Any]) -> None:
    kind = _bare(kind)
    match kind:
        case kinds.CollectionType(item_type=item):
            # The decoder makes one of equal items and refuses nothing.
            node.pop("uniqueItems", None)
            _complete(item, node.get("items", {}))
        case kinds.TupleType(item_types=parts):
            for part, below in zip(parts, node.get("prefixItems", ()), strict=True):
                _complete(part, below)
        case kinds.DictType(key_type=key, value_type=value):
            _complete_keys(key, node)
            _complete(value, node.get("additionalProperties", {}))
        case kinds.UnionType(types=parts):
            for part in parts:
                _complete_option(part, node["anyOf"])
        case _:
            _complete_single(kind, node)


def _complete_single(kind: kinds.Type, node: dict[str, Any]) -> None:
    match kind:
        case kinds.DateTimeType(tz=None):
            node["anyOf"] = [{"format": "date-time"}, {"format": "date-time-local"}]
        case kinds.DateTimeType(tz=False):
            node["format"] = "date-time-local"
        case kinds.TimeType(tz=None):
            node["anyOf"] = [{"format": "time"}, {"format": "partial-time"}]
        case kinds.DecimalType():
            # The decoder takes numbers as well; a format speaks of texts alone.
            node["type"] = ["string", "number"]
        case _:
            pass


def _complete_option(kind: kinds.Type, options: list[dict[str, Any]]) -> None:
    """In JSON a union has at most one text, one array and one object, so these tell its options apart."""
    match _bare(kind):
        case kinds.DateTimeType() | kinds.TimeType() | kinds.DecimalType():
            shape = "string"
        case kinds.CollectionType() | kinds.TupleType():
            shape = "array"
        case kinds.DictType():
            shape = "object"
        case _:
            return
    for option in options:
        if option.get("type") == shape:
            _complete(kind, option)


def _complete_keys(kind: kinds.Type, node: dict[str, Any]) -> None:
    match _bare(kind):
        case kinds.AnyType() | kinds.StrType():
            pass
        case kinds.IntType(gt=None, ge=None, lt=None, le=None, multiple_of=None):
            node["propertyNames"] = {"pattern": r"^(-?[1-9][0-9]*|-?0)\Z"}
        case kinds.UUIDType():
            node["propertyNames"] = {"format": "uuid"}
        case kinds.DateType():
            node["propertyNames"] = {"format": "date"}
        case kinds.LiteralType(values=values) if all(isinstance(value, str) for value in values):
            node["propertyNames"] = {"enum": list(values)}
        case kinds.EnumType(cls=cls) if all(isinstance(member.value, str) for member in cls):
            node["propertyNames"] = {"enum": [member.value for member in cls]}
        case _:
            raise TypeError("keys must be str, int, UUID, date, or an Enum or Literal of str")


def _bare(kind: kinds.Type) -> kinds.Type:
    while isinstance(kind, kinds.Metadata):
        kind = kind.type
    return kind


# --- models -------------------------------------------------------------------------------------


def is_model(kind: object) -> bool:
    """Whether a class validates, dumps and describes itself as pydantic's models do."""
    verbs = ("model_validate_json", "model_dump", "model_json_schema")
    return isinstance(kind, type) and all(callable(getattr(kind, verb, None)) for verb in verbs)


def dumped(value: Any) -> Any:
    """A model as JSON's own values; for msgspec's encoder, which asks about classes that it does not know."""
    if is_model(type(value)):
        return value.model_dump(mode="json", by_alias=True)
    raise TypeError(f"{type(value).__name__} cannot be sent as JSON")


def loaded(kind: Any, value: Any) -> Any:
    """A model from JSON's own values, validated by itself; for msgspec's decoder."""
    if is_model(kind):
        return kind.model_validate_json(msgspec.json.encode(value))
    raise TypeError(f"{kind.__name__} cannot be read from JSON")


def _model_reference(kind: type) -> dict[str, Any]:
    """Where a model's schema stands; for msgspec's schemas."""
    if is_model(kind):
        return {"$ref": f"#/$defs/{kind.__name__}"}
    raise NotImplementedError


def _model_definitions(kind: Any) -> dict[str, Any]:
    """The schemas of a model and of the models within it, by name."""
    schema = kind.model_json_schema(ref_template="#/$defs/{model}")
    within: dict[str, Any] = schema.pop("$defs", {})
    # A model that contains itself refers to a definition of its own.
    return within if set(schema) == {"$ref"} else {**within, kind.__name__: schema}
