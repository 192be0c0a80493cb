"""The contract: OpenAPI 3.1 from the routes and the types that decode requests, and a page made of it.

The page needs no scripts and no other host.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Sequence
from functools import cache
from http import HTTPStatus
from importlib.metadata import version
from typing import Any

import msgspec

from windlass.ops.actions import Need, Parameter
from windlass.server.call import Call
from windlass.server.forms import words
from windlass.server.identity import roles_for
from windlass.server.problems import ProblemDocument
from windlass.server.routes import JSON, ROUTES, Reply, Route, route

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


@cache
def contract() -> dict[str, Any]:
    """The whole document."""
    kinds: set[type[msgspec.Struct]] = {
        kind for each in ROUTES for kind in (each.takes, *each.gives.values()) if kind is not None
    }
    kinds.add(ProblemDocument)
    ordered = sorted(kinds, key=lambda kind: kind.__name__)
    schemas, components = msgspec.json.schema_components(ordered, ref_template=_PLACE + "{name}")
    by_kind: dict[type, dict[str, Any]] = dict(zip(ordered, schemas, strict=True))
    given = [by_kind[kind] for each in ROUTES for kind in each.gives.values() if kind is not None]
    taken = [by_kind[each.takes] for each in ROUTES if each.takes is not None]
    for name in _named(given, components) - _named(taken, components):
        components[name] = _as_sent(components[name])
    paths: dict[str, Any] = {}
    for each in ROUTES:
        paths.setdefault(each.path, {})[each.method.lower()] = _operation(each, by_kind)
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
        operation["x-needs"] = " or ".join(roles_for(route.need))
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


# --- both, as they are sent ---------------------------------------------------------------------


# Written once: who asks for it needs no key, and must cost little.
_json = cache(lambda: msgspec.json.encode(contract()))


@route("GET /openapi.json", "The contract, for machines", {200: None}, need=Need.NOTHING)
async def show_contract(_: Call) -> Reply:
    """The contract, for machines."""
    return Reply(200, _json(), media_type=JSON)


@route("GET /docs", "The contract, for people", {200: None}, need=Need.NOTHING, media_type="text/html")
async def show_docs(_: Call) -> Reply:
    """The contract, for people."""
    return Reply(200, _page(), media_type=b"text/html; charset=utf-8")


_STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
h3 { margin-top: 2rem } code, pre { font-family: ui-monospace, monospace; font-size: .9em }
pre { overflow-x: auto; padding: .75rem; border: 1px solid color-mix(in srgb, currentColor 25%, transparent) }
b.method { display: inline-block; min-width: 4.5rem } small { opacity: .75 }
td, th { text-align: left; padding: .1rem 1rem .1rem 0; vertical-align: top }
"""

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Windlass over HTTP</title><style>{style}</style></head><body><h1>Windlass over HTTP</h1>
<p>Send and take JSON. Every refusal is a problem (RFC 9457): <code>type</code>, <code>status</code>,
<code>detail</code> and, where a value is to blame, <code>errors</code> with its field and what is allowed.
Where keys are needed: <code>Authorization: Bearer wl_...</code>. For machines:
<a href="/openapi.json">/openapi.json</a>.</p>
{operations}
</body></html>
"""


@cache
def _page() -> bytes:
    found = contract()
    told = [
        _section(path, method.upper(), operation, found["components"]["schemas"])
        for path, methods in found["paths"].items()
        for method, operation in methods.items()
    ]
    return _PAGE.format(style=_STYLE, operations="\n".join(told)).encode()


def _section(path: str, method: str, operation: dict[str, Any], schemas: dict[str, Any]) -> str:
    need = f" <small>needs the role {operation['x-needs']}</small>" if "x-needs" in operation else ""
    lines = [
        f'<h3 id="{operation["operationId"]}"><b class="method">{method}</b> ',
        f"<code>{html.escape(path)}</code></h3>",
        f"<p>{html.escape(operation['description'])}{need}</p>",
    ]
    told = [(each["name"], each["description"]) for each in operation.get("parameters", [])]
    if "requestBody" in operation:
        [body] = operation["requestBody"]["content"].values()
        schema = body["schema"].get("x-line", body["schema"])
        schema = schemas[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
        fields = schema.get("properties", {})
        told += [(name, _explained(each, schemas)) for name, each in fields.items()]
        example = {name: _example(fields[name]) for name in schema.get("required", ())}
        lines.append(f"<pre>{html.escape(json.dumps(example))}</pre>")
    rows = [f"<tr><th>{html.escape(name)}</th><td>{html.escape(what)}</td></tr>" for name, what in told]
    lines.append(f"<table>{''.join(rows)}</table>")
    codes = ", ".join(f"{code} {answer['description']}" for code, answer in operation["responses"].items())
    lines.append(f"<p><small>Answers: {html.escape(codes)}</small></p>")
    return "".join(lines)


def _explained(schema: dict[str, Any], schemas: dict[str, Any]) -> str:
    """A field in words: what is allowed, and what it means."""
    meant = [each["description"] for each in (schema, *schema.get("anyOf", ())) if "description" in each][:1]
    allowed = words(schema, schemas)
    return ". ".join([allowed, *(each for each in meant if each.rstrip(".").lower() != allowed.lower())])


def _example(schema: dict[str, Any]) -> Any:
    if schema.get("examples"):
        return schema["examples"][0]
    return {"array": [], "object": {}, "integer": 1, "string": "..."}.get(str(schema.get("type")), {})
