"""Where can a person read what the server does? On a page without scripts and without any other host."""

from __future__ import annotations

import html
import json
from collections.abc import Callable
from typing import Any

import msgspec

from windlass.ops.actions import Need
from windlass.server.call import Call
from windlass.server.forms import words
from windlass.server.reply import JSON, Reply
from windlass.server.routes import route

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


@route("GET /openapi.json", "The contract, for machines", {200: None}, need=Need.NOTHING)
async def show_contract(call: Call) -> Reply:
    """The contract, for machines."""
    return _written(call, JSON, msgspec.json.encode)


@route("GET /docs", "The contract, for people", {200: None}, need=Need.NOTHING, media_type="text/html")
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
        told += [(name, _explained(each, schemas)) for name, each in fields.items()]
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


def _explained(schema: dict[str, Any], schemas: dict[str, Any]) -> str:
    """A field in words: what is allowed, and what it means."""
    meant = [each["description"] for each in (schema, *schema.get("anyOf", ())) if "description" in each][:1]
    allowed = words(schema, schemas)
    return ". ".join([allowed, *(each for each in meant if each.rstrip(".").lower() != allowed.lower())])


def _example(schema: dict[str, Any]) -> Any:
    if schema.get("examples"):
        return schema["examples"][0]
    return {"array": [], "object": {}, "integer": 1, "string": "..."}.get(str(schema.get("type")), {})
