"""The catalogue of job types: what live releases know, with their schemas."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import msgspec

from windlass import settings
from windlass.clock import span
from windlass.job import Shape, TypeInfo
from windlass.store import rows
from windlass.store.engine import Row, Tx

KEEP = "keep_schemas"
# Processes say that they are there more often than this; a process that says it again sooner writes nothing.
_STALE = timedelta(seconds=30)
# What a process of an older Windlass has written: it never says that it is still there.
_SILENT = timedelta(days=1)
# Nothing that `keep_schemas` allows is longer.
_LONGEST = timedelta(days=7)


class _Entry(NamedTuple):
    """A type as one release of the application knows it. The greater of two holds."""

    schema_version: int
    first_at: int
    digest: str
    name: str
    schema: str
    options: str
    seen_at: int
    silent: bool

    @property
    def shape(self) -> Shape:
        return Shape(schema_version=self.schema_version, schema=_decode(self.schema))


def register(tx: Tx, types: Sequence[TypeInfo], app: str = "") -> None:
    """Note that a process of a release is there that knows these types."""
    for info in types:
        told = {"digest": digest_of(info), "app": app, "stale": tx.now - span(_STALE)}
        tx.change("note_schema", **rows.columns(info), **told, now=tx.now)
    found = _Found(tx.rows("catalogue", longest=span(_LONGEST)))
    for info in types:
        if (foreign := found.foreign.get(info.name)) is not None:
            # An older process has overwritten the shared row: what it knows stays, as one release of several.
            tx.change("note_silent_schema", **foreign._asdict(), now=tx.now, stale=tx.now - span(_STALE))
        if (held := found.held(info.name)) is not None and held.digest != found.written.get(info.name):
            tx.change("put_type", **held._asdict(), now=tx.now)


def is_news(tx: Tx, types: Sequence[TypeInfo]) -> bool:
    """Whether `register` would write anything."""
    found = _Found(tx.rows("catalogue", longest=span(_LONGEST)))
    fresh = tx.now - span(_STALE)
    for info in types:
        ours = found.entries.get((info.name, digest_of(info)))
        if ours is None or ours.silent or ours.seen_at < fresh:
            return True
        held = found.held(info.name)
        if info.name in found.foreign or (held and held.digest != found.written.get(info.name)):
            return True
    return False


def types(tx: Tx) -> dict[str, TypeInfo]:
    """The catalogue by name: what the newest live release says, and the other schemas that are live."""
    found = _Found(tx.rows("catalogue", longest=span(_LONGEST)))
    return {name: info for name in sorted(found.names) if (info := found.info(name)) is not None}


def shapes(tx: Tx, job_type: str) -> list[Shape]:
    """Every schema that a type has had, also of releases that are gone."""
    return [rows.read(Shape, row) for row in tx.rows("schemas_of_type", name=job_type)]


class _Found:
    def __init__(self, found: Sequence[Row]) -> None:
        shared = {row["name"]: row for row in found if row["shared"]}
        kept = next((row["keep"] for row in shared.values()), None)
        lasting = span(settings.read({} if kept is None else {KEEP: kept}).keep_schemas)
        self.names = {row["name"] for row in found}
        # What this Windlass, or a later one, has written into the shared row; and what an older one has.
        self.written: dict[str, str] = {}
        self.foreign: dict[str, _Entry] = {}
        for name, row in shared.items():
            content = _digest(row["schema_version"], row["schema"], row["options"])
            if row["digest"] == content:
                self.written[name] = content
            else:
                self.foreign[name] = _entry(row, content)
        own = [_entry(row, row["digest"]) for row in found if not row["shared"]]
        newest: dict[str, int] = {}
        for each in own:
            newest[each.name] = max(each.seen_at, newest.get(each.name, 0))
        # Counted from the last one seen: what nobody is left to replace stays.
        self.entries = {
            (each.name, each.digest): each
            for each in own
            if each.seen_at >= newest[each.name] - (span(_SILENT) if each.silent else lasting)
        }
        self._by_name: dict[str, list[_Entry]] = {}
        for each in (*self.entries.values(), *self.foreign.values()):
            self._by_name.setdefault(each.name, []).append(each)

    def held(self, name: str) -> _Entry | None:
        """The entry that holds: of the newest schema version, then of the release that came last."""
        return max(self._by_name.get(name, ()), default=None)

    def info(self, name: str) -> TypeInfo | None:
        """What all live releases say of a type."""
        held = self.held(name)
        if held is None:
            return None
        options = _decode(held.options)
        # Whatever any live release keeps secret is secret: a restart of an older process must not end that.
        secret = dict.fromkeys(
            field for each in self._by_name[name] for field in _decode(each.options).get("encrypt", ())
        )
        if secret:
            options["encrypt"] = list(secret)
        # The live schemas beside the one that holds, the newest first.
        distinct = {(each.schema_version, each.schema): each for each in sorted(self._by_name[name])}
        distinct.pop((held.schema_version, held.schema), None)
        return TypeInfo(
            name=name,
            schema_version=held.schema_version,
            schema=_decode(held.schema),
            options=options,
            others=tuple(each.shape for each in sorted(distinct.values(), reverse=True)),
        )


def _entry(row: Row, digest: str) -> _Entry:
    told = {name: row[name] for name in _Entry._fields}
    return _Entry(**told | {"digest": digest, "silent": bool(row["silent"])})


def digest_of(info: TypeInfo) -> str:
    """What tells the entries of two releases apart."""
    return _digest(info.schema_version, rows.json_text(info.schema), rows.json_text(info.options))


def _digest(schema_version: int, schema: str, options: str) -> str:
    content = f"{schema_version}\n{schema}\n{options}".encode()
    return hashlib.blake2b(content, digest_size=8).hexdigest()


_decode = msgspec.json.Decoder(dict[str, Any]).decode
