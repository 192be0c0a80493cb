"""What is the contract? OpenAPI 3.1, from the table of routes and the types that decode requests."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from http import HTTPStatus
from importlib.metadata import version
from typing import Any

import msgspec

from windlass.ops.actions import Need, Parameter
from windlass.server.problems import ProblemDocument
from windlass.server.routes import Route

_PLACE = "#/components/schemas/"
# What any route may answer with.
_ANY_ROUTE = (400, 421, 503)
_WITH_KEYS = (401, 403)
_PATH = {
    "id": "An id, or a key.",
    "type": "A job type.",
    "name": "A schedule's name.",
    "lease": "The `lease` of a claimed job.",
}


def contract(routes: Sequence[Route]) -> dict[str, Any]:
    """The whole document."""
    kinds: set[type[msgspec.Struct]] = {
        kind for route in routes for kind in (route.takes, *route.gives.values()) if kind is not None
    }
    ordered = sorted({*kinds, ProblemDocument}, key=lambda kind: kind.__name__)
    schemas, components = msgspec.json.schema_components(ordered, ref_template=_PLACE + "{name}")
    by_kind: dict[type, dict[str, Any]] = dict(zip(ordered, schemas, strict=True))
    given = [by_kind[kind] for route in routes for kind in route.gives.values() if kind is not None]
    taken = [by_kind[route.takes] for route in routes if route.takes is not None]
    for name in _named(given, components) - _named(taken, components):
        components[name] = _as_sent(components[name])
    paths: dict[str, Any] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, by_kind)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Windlass",
            "version": version("windlass"),
            "description": "A background job queue: produce, operate and work over HTTP.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer", "description": "An API key."}},
        },
    }


def _named(schemas: Iterable[Any], components: dict[str, Any]) -> set[str]:
    """The components that schemas lead to."""
    found: set[str] = set()
    waiting = list(schemas)
    while waiting:
        each = waiting.pop()
        if isinstance(each, list):
            waiting += each
        elif isinstance(each, dict):
            waiting += each.values()
        elif isinstance(each, str) and each.startswith(_PLACE):
            name = each.removeprefix(_PLACE)
            if name not in found:
                found.add(name)
                waiting.append(components[name])
    return found


def _as_sent(schema: Any) -> Any:
    """What is answered leaves no field out, and tells durations in seconds."""
    if isinstance(schema, list):
        return [_as_sent(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("format") == "duration":
        return {"type": "number"}
    told = {name: _as_sent(each) for name, each in schema.items() if name != "default"}
    return told | ({"required": list(schema["properties"])} if schema.get("properties") else {})


def _operation(route: Route, schemas: dict[type, dict[str, Any]]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "description": route.answer.__doc__ or "",
        "tags": [route.path.removeprefix("/api/v1/").strip("/").partition("/")[0]],
        "responses": _responses(route, schemas),
    }
    if parameters := _parameters(route):
        operation["parameters"] = parameters
    if route.takes is not None:
        schema = schemas[route.takes]
        if route.accepts != "application/json":
            schema = {"type": "string", "description": "Many documents, one a line.", "x-line": schema}
        operation["requestBody"] = {
            "required": any(field.required for field in msgspec.structs.fields(route.takes)),
            "content": {route.accepts: {"schema": schema}},
        }
    if route.need is not Need.NOTHING:
        # Without keys at a server that needs none.
        operation["security"] = [{}, {"key": []}]
        operation["x-needs"] = route.need.value
    return operation


def _responses(route: Route, schemas: dict[type, dict[str, Any]]) -> dict[str, Any]:
    refuses = {*_ANY_ROUTE, *(() if route.need is Need.NOTHING else _WITH_KEYS), *route.refuses}
    found: dict[str, Any] = {}
    for status in (*route.gives, *sorted(refuses - route.gives.keys())):
        kind, media_type = route.gives.get(status), route.media_type
        if status not in route.gives:
            kind, media_type = ProblemDocument, "application/problem+json"
        answer: dict[str, Any] = {"description": HTTPStatus(status).phrase}
        found[str(status)] = answer
        if kind is not None or media_type != "application/json":
            schema = {"type": "string"} if kind is None else schemas[kind]
            answer["content"] = {media_type: {"schema": schema}}
    return found


def _parameters(route: Route) -> list[dict[str, Any]]:
    path = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "description": _PATH[name],
            "schema": {"type": "string", "minLength": 1},
        }
        for name in re.findall(r"{(\w+)}", route.path)
    ]
    query = [
        {"name": each.field, "in": "query", "description": each.option.help, "schema": _query_schema(each)}
        for each in route.query
    ]
    return path + query


def _query_schema(each: Parameter) -> dict[str, Any]:
    if each.base is int:
        bounds = {"minimum": each.bounds.ge, "maximum": each.bounds.le}
        return {"type": "integer", **bounds, "default": each.default}
    if each.base in (Sequence[str], list[str]):
        return {"type": "array", "items": {"type": "string"}}
    return {"type": "string"}
