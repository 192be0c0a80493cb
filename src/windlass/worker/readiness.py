"""Is everything there that the handlers will need? Better asked at the start than found missing at night."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping

from windlass.errors import must_be
from windlass.job import TypeInfo
from windlass.payload import Ring
from windlass.registry import Handler

log = logging.getLogger("windlass.worker")


def check(handlers: Iterable[Handler], known: Mapping[str, TypeInfo], ring: Callable[[], Ring]) -> None:
    """Refuse to start without a key or a step of an upgrade; warn of payloads that nobody upgrades."""
    for handler in handlers:
        _check_steps(handler)
        _check_key(handler, ring)
        _warn_of_older(handler, known.get(handler.name))


def _check_steps(handler: Handler) -> None:
    missing = handler.upgrades.missing()
    if missing:
        steps = ", ".join(f"upgrade(from_version={version})" for version in missing)
        allowed = f"without a gap up to version {handler.version}: {steps} is missing"
        raise must_be(f"the upgrades of {handler.name}", "a gap", allowed)


def _check_key(handler: Handler, ring: Callable[[], Ring]) -> None:
    if handler.encrypt and not ring():
        allowed = f"given: the type {handler.name} encrypts {', '.join(handler.encrypt)}"
        raise must_be("encryption_keys (WINDLASS_ENCRYPTION_KEYS)", "none", allowed)


def _warn_of_older(handler: Handler, known: TypeInfo | None) -> None:
    """The store has seen an older version, of which jobs may wait or lie among the dead letters."""
    if known is None or handler.upgrades.covers(known.schema_version):
        return
    log.warning(
        "type.upgrade_missing",
        extra={
            "type": handler.name,
            "from_version": known.schema_version,
            "version": handler.version,
            "note": "older payloads run only if they fit as they are",
        },
    )
