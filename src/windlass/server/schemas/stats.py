"""What is said of the whole: health, numbers, workers?"""

from __future__ import annotations

import msgspec

from windlass.ops.document import WorkerDocument


class HealthDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Whether all is well."""

    ok: bool
    store: str


class WorkersDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Every worker that has a row, newest first."""

    workers: list[WorkerDocument]
