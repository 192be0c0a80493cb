"""What may one JSON object ask for when it stands for a whole job?"""

from __future__ import annotations

from typing import Any

import msgspec

from windlass.checks import read_moment
from windlass.errors import must_be
from windlass.payload import parse
from windlass.registry import SHELL

_JOB = ("type", "payload")
_COMMAND = ("command", "timeout", "cwd", "env")
_OPTIONS = (
    "id",
    "key",
    "priority",
    "delay",
    "run_at",
    "max_attempts",
    "tenant",
    "payload_ref",
    "depends_on",
    "on_dead",
    "unique",
    "until",
    "on_unique",
)


class Request(msgspec.Struct, frozen=True):
    """A job as asked for: its type, its payload, and the options of `Queue.enqueue`."""

    type: str
    payload: dict[str, Any]
    options: dict[str, Any]


def read_request(text: str | bytes, field: str = "job") -> Request:
    """A job from one JSON object: a type with its payload, or a command for the shell. An id is a key."""
    given = parse(text, field)
    allowed = (*(_COMMAND if "command" in given else _JOB), *_OPTIONS)
    for name in given:
        if name not in allowed:
            raise must_be(f"each field of {field}", name, "one of " + ", ".join(allowed))
    if "command" in given:
        payload = {name: given[name] for name in _COMMAND if name in given}
        return Request(SHELL, payload, _options(given))
    if not isinstance(given.get("type"), str):
        raise must_be(field, text, 'an object with a "type" and a "payload", or with a "command"')
    payload = given.get("payload", {})
    if not isinstance(payload, dict):
        raise must_be(f"payload of {field}", payload, "a JSON object")
    return Request(given["type"], payload, _options(given))


def _options(given: dict[str, Any]) -> dict[str, Any]:
    if "id" in given and "key" in given:
        raise must_be("key", given["key"], "left out where there is an id: they are the same thing")
    options = {name: given[name] for name in _OPTIONS if given.get(name) is not None}
    if "id" in options:
        options["key"] = options.pop("id")
    if "run_at" in options:
        options["at"] = read_moment(options.pop("run_at"))
    return options
