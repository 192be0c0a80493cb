"""A server of another release may answer otherwise: that is said, and is no mistake of the command line."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, cast

import pytest

from tests.unit.scene import THEN
from windlass.errors import StoreMismatch
from windlass.ops.remote import RemoteOps
from windlass.store.jobs import Filter
from windlass.store.store import Store


class Server:
    """Stands for a server that says the same to everything."""

    def __init__(self, answer: dict[str, Any]) -> None:
        self._answer = answer

    def counts(self) -> None:
        """Never asked."""

    def now(self) -> datetime:
        return THEN

    def ask(self, *_: object, **__: object) -> dict[str, Any]:
        return self._answer


def ops(answer: dict[str, Any]) -> RemoteOps:
    return RemoteOps(cast("Store", Server(answer)))


@pytest.mark.parametrize(
    "ask",
    [
        RemoteOps.status,
        RemoteOps.types,
        RemoteOps.signals,
        RemoteOps.workers,
        RemoteOps.database,
        lambda ops: ops.explain("j"),
        lambda ops: ops.bury("j"),
        lambda ops: ops.pause("t"),
        lambda ops: ops.resume("t"),
        lambda ops: ops.drain("w"),
        lambda ops: ops.bulk("cancel", Filter(types=("t",)), dry_run=True),
    ],
)
def test_an_answer_that_lacks_what_is_asked_for_is_a_mismatch(ask: Callable[[RemoteOps], object]) -> None:
    with pytest.raises(StoreMismatch, match="does not answer as one of this release does"):
        ask(ops({}))


def test_a_count_of_a_server_that_does_not_say_whether_it_is_all_is_taken() -> None:
    counted = ops({"verb": "cancel", "dry_run": True, "matched": 3})
    assert counted.bulk("cancel", Filter(types=("t",)), dry_run=True).matched == 3
