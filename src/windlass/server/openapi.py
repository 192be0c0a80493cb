"""What is the contract? OpenAPI 3.1, from the table of routes and the types that decode requests."""

from __future__ import annotations

import re
from collections.abc import Sequence
from http import HTTPStatus
from importlib.metadata import version
from typing import Any

import msgspec

from windlass.server.identity import Need
from windlass.server.problems import ProblemDocument
from windlass.server.routes import Route

_REFERENCE = "#/components/schemas/{name}"
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
    ordered: list[type[msgspec.Struct]] = sorted({*kinds, ProblemDocument}, key=_name)
    schemas, components = msgspec.json.schema_components(ordered, ref_template=_REFERENCE)
    by_kind: dict[type, dict[str, Any]] = dict(zip(ordered, schemas, strict=True))
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


def _name(kind: type[msgspec.Struct]) -> str:
    return kind.__name__


def _operation(route: Route, schemas: dict[type, dict[str, Any]]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "description": route.answer.__doc__ or "",
        "tags": [_tag(route)],
        "responses": _responses(route, schemas),
    }
    if parameters := [*_path_parameters(route), *_query_parameters(route)]:
        operation["parameters"] = parameters
    if route.takes is not None:
        operation["requestBody"] = {
            "required": _is_required(route.takes),
            "content": {"application/json": {"schema": schemas[route.takes]}},
        }
    if route.need is not Need.NOTHING:
        # Without keys at a server that needs none.
        operation["security"] = [{}, {"key": []}]
        operation["x-needs"] = route.need.value
    return operation


def _is_required(kind: type[msgspec.Struct]) -> bool:
    return any(field.required for field in msgspec.structs.fields(kind))


def _responses(route: Route, schemas: dict[type, dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for status, kind in route.gives.items():
        answer: dict[str, Any] = {"description": HTTPStatus(status).phrase}
        if kind is not None:
            answer["content"] = {route.media_type: {"schema": schemas[kind]}}
        elif route.media_type != "application/json":
            answer["content"] = {route.media_type: {"schema": {"type": "string"}}}
        found[str(status)] = answer
    keys = () if route.need is Need.NOTHING else _WITH_KEYS
    for status in sorted({*_ANY_ROUTE, *keys, *route.refuses}):
        if str(status) not in found:
            found[str(status)] = {
                "description": HTTPStatus(status).phrase,
                "content": {"application/problem+json": {"schema": schemas[ProblemDocument]}},
            }
    return found


def _path_parameters(route: Route) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "description": _PATH[name],
            "schema": {"type": "string", "minLength": 1},
        }
        for name in re.findall(r"{(\w+)}", route.path)
    ]


def _query_parameters(route: Route) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "query", "description": told, "schema": _QUERY.get(name, {"type": "string"})}
        for name, told in route.query.items()
    ]


def _tag(route: Route) -> str:
    parts = route.path.removeprefix("/api/v1/").strip("/").split("/")
    return parts[0]


_QUERY: dict[str, dict[str, Any]] = {
    "limit": {"type": "integer", "minimum": 1, "maximum": 1000, "default": 50},
    "fires": {"type": "integer", "minimum": 1, "maximum": 100, "default": 20},
    "state": {"type": "array", "items": {"type": "string"}},
    "type": {"type": "array", "items": {"type": "string"}},
    "where": {"type": "array", "items": {"type": "string"}},
}
