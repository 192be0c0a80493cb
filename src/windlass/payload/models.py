"""How do pydantic's models travel? By their own word, without importing pydantic."""

from __future__ import annotations

from typing import Any

import msgspec


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


def reference(kind: type) -> dict[str, Any]:
    """Where a model's schema stands; for msgspec's schemas."""
    if is_model(kind):
        return {"$ref": f"#/$defs/{kind.__name__}"}
    raise NotImplementedError


def definitions(kind: Any) -> dict[str, Any]:
    """The schemas of a model and of the models within it, by name."""
    schema = kind.model_json_schema(ref_template="#/$defs/{model}")
    within: dict[str, Any] = schema.pop("$defs", {})
    # A model that contains itself refers to a definition of its own.
    return within if set(schema) == {"$ref"} else {**within, kind.__name__: schema}
