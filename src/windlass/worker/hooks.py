"""How are an application's own hooks for a worker's start and stop called?"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable

from windlass.worker.coroutines import Coroutines

log = logging.getLogger("windlass.worker")

Hooks = Iterable[Callable[[], object]]


def call_all(hooks: Hooks, coroutines: Coroutines, timeout: float | None = None) -> None:
    """Call each, one after the other; `async def` hooks on the loop that the jobs will share."""
    for hook in hooks:
        answer = hook()
        if inspect.iscoroutine(answer):
            coroutines.wait(answer, timeout)


def call_each(hooks: Hooks, coroutines: Coroutines, left: Callable[[], float]) -> None:
    """Call each, whatever the others do: at a stop, one that fails must not keep the rest from tidying up.

    `left` tells the seconds that there are yet: the loop may be blocked by a job for ever.
    """
    for hook in hooks:
        try:
            call_all([hook], coroutines, left())
        except Exception:  # wall: the worker stops in any case
            log.exception("worker.stop_hook_failed", extra={"hook": repr(hook)})


def need_the_loop(hooks: Hooks) -> bool:
    """Whether any of them is `async def`."""
    return any(inspect.iscoroutinefunction(hook) for hook in hooks)
