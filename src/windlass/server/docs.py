"""Where can a person read what the server does? On a page without scripts and without any other host."""

from __future__ import annotations

import html
import json
from collections.abc import Callable
from typing import Any

import msgspec

from windlass.server.call import Call
from windlass.server.identity import Need
from windlass.server.reply import JSON, Reply
from windlass.server.routes import Route

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
_BOUNDS = {"minimum": "from", "maximum": "to", "maxLength": "up to"}


async def show_contract(call: Call) -> Reply:
    """The contract, for machines."""
    return _written(call, JSON, msgspec.json.encode)


async def show_docs(call: Call) -> Reply:
    """The contract, for people."""
    return _written(call, b"text/html; charset=utf-8", lambda contract: page(contract).encode())


def _written(call: Call, kind: bytes, write: Callable[[dict[str, Any]], bytes]) -> Reply:
    """Written once: whoever asks for it needs no key, and must cost little."""
    sent = call.parts.contract_sent
    if kind not in sent:
        sent[kind] = write(call.parts.contract)
    return Reply(200, sent[kind], media_type=kind)


def page(contract: dict[str, Any]) -> str:
    """The whole contract as one page."""
    told = [
        _operation(path, method.upper(), operation, contract["components"]["schemas"])
        for path, methods in contract["paths"].items()
        for method, operation in methods.items()
    ]
    return _PAGE.format(style=_STYLE, operations="\n".join(told))


def _operation(path: str, method: str, operation: dict[str, Any], schemas: dict[str, Any]) -> str:
    need = f" <small>needs the right to {operation['x-needs']}</small>" if "x-needs" in operation else ""
    lines = [
        f'<h3 id="{operation["operationId"]}"><b class="method">{method}</b> ',
        f"<code>{html.escape(path)}</code></h3>",
        f"<p>{html.escape(operation['description'])}{need}</p>",
    ]
    told = [(each["name"], each["description"]) for each in operation.get("parameters", [])]
    if "requestBody" in operation:
        [body] = operation["requestBody"]["content"].values()
        schema = _named(body["schema"].get("x-line", body["schema"]), schemas)
        fields = schema.get("properties", {})
        told += [(name, _words(each)) for name, each in fields.items()]
        example = {name: _example(fields[name]) for name in schema.get("required", ())}
        lines.append(f"<pre>{html.escape(json.dumps(example))}</pre>")
    rows = [f"<tr><th>{html.escape(name)}</th><td>{html.escape(what)}</td></tr>" for name, what in told]
    lines.append(f"<table>{''.join(rows)}</table>")
    codes = ", ".join(f"{code} {answer['description']}" for code, answer in operation["responses"].items())
    lines.append(f"<p><small>Answers: {html.escape(codes)}</small></p>")
    return "".join(lines)


def _named(schema: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = schemas[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    return found


def _words(schema: dict[str, Any]) -> str:
    """A field in words: of what kind, within which bounds, and what it means."""
    kinds = [each for each in schema.get("anyOf", [schema]) if each.get("type") != "null"]
    words = [" or ".join(dict.fromkeys(map(_kind, kinds)))]
    words += [f"{word} {each[name]}" for each in kinds for name, word in _BOUNDS.items() if name in each]
    meaning = [each["description"] for each in (schema, *kinds) if "description" in each][:1]
    return ". ".join([" ".join(words), *meaning])


def _kind(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return "one of " + ", ".join(str(each) for each in schema["enum"] if each is not None)
    return str(schema.get("type", schema.get("$ref", "any value"))).rpartition("/")[2]


def _example(schema: dict[str, Any]) -> Any:
    if schema.get("examples"):
        return schema["examples"][0]
    return {"array": [], "object": {}, "integer": 1, "string": "..."}.get(str(schema.get("type")), {})


ROUTES = (
    Route(
        method="GET",
        path="/openapi.json",
        answer=show_contract,
        need=Need.NOTHING,
        summary="The contract, for machines",
        gives={200: None},
    ),
    Route(
        method="GET",
        path="/docs",
        answer=show_docs,
        need=Need.NOTHING,
        summary="The contract, for people",
        gives={200: None},
        media_type="text/html",
    ),
)
