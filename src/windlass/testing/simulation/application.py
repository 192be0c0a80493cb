"""The application that every simulated process imports, and what its handlers do.

Its second release knows a parameter more of one type, declares other times for a schedule, and has lost one.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from windlass.context import Context
from windlass.errors import Cancel, FatalError, RetryableError, Snooze
from windlass.queue import Queue
from windlass.testing.simulation.determinism import by_chance

if TYPE_CHECKING:
    from windlass.testing.simulation.process import Process

LIMIT = 2
# Of all types that share a key.
SHARED_LIMIT = 3
TENANTS = ("", "acme", "globex")
TICK = "tick"
# Declared by the first release only.
OLD_TICK = "old_tick"
SCHEDULED = (TICK, OLD_TICK, "report")
RATE_SECONDS = 5
# The options of each type.
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "limited": {"concurrency": LIMIT, "when_unsure": "stop"},
    "flaky": {"rules": {LookupError: "fatal", KeyError: "retry"}},
    "rated": {"rate": f"{60 // RATE_SECONDS}/m", "burst": 2},
    "shared": {"limit_key": "crm", "tenant_concurrency": 1, "max_priority": 7},
    "slow": {"timeout": 20, "limit_key": "crm"},
    "old": {"max_age": 90, "result": "required", "rules": lambda _: "retry"},
    "checked": {"sample": 1.0, "verify_after": 20, "sensitive": True},
}
TYPES = tuple(OPTIONS)
# How long a handler of the type `slow` takes, now and then.
SLOW_SECONDS = 40.0
_EVERY = timedelta(seconds=30)
# What a handler does, and how often of a hundred.
_DEEDS = {
    "return": 40,
    "fail": 15,
    "give up": 4,
    "snooze": 5,
    "enqueue": 6,
    "transact": 10,
    "once": 6,
    "progress": 4,
    "cancel": 3,
    "later": 3,
    "unkept": 3,
    "longer": 2,
    "odd": 3,
}
_FLAKY = {"return": 20, "fail": 70, "look up": 10}


def register(process: Process) -> None:
    """What a process of its release knows."""
    queue, world = process.queue, process.world

    def handle(ctx: Context, number: int) -> object:
        world.note_start(process, ctx)
        result = _act(ctx, process, number)
        world.note_return(ctx)
        return result

    def handle_more(ctx: Context, number: int, extra: int = 0) -> object:
        return handle(ctx, number + extra)

    def tick(ctx: Context) -> None:
        handle(ctx, 0)

    for name, options in OPTIONS.items():
        handler: Callable[..., object] = handle_more if (name, process.release) == ("plain", 2) else handle
        more = {"verify": _is_good} if name == "checked" else {}
        queue.job(name=name, max_attempts=3, **options, **more)(handler)  # type: ignore[call-overload]
    queue.limit("crm", concurrency=SHARED_LIMIT)
    queue.job(name=TICK, every=process.release * _EVERY, max_attempts=2)(tick)
    queue.job(name="report", every=timedelta(hours=12), catch_up="all", overlap="queue", jitter=10)(tick)
    if process.release == 1:
        queue.job(name=OLD_TICK, cron="* * * * *", catch_up="none")(tick)


def _is_good(result: object) -> bool:
    if by_chance(0.1):
        raise ValueError("cannot say")
    return result != 0


def _act(ctx: Context, process: Process, number: int) -> object:
    calm = process.world.calm
    deeds = {"return": 1} if calm else _FLAKY if ctx.type == "flaky" else _DEEDS
    [deed] = random.choices(list(deeds), list(deeds.values()))
    if deed in _RAISED:
        why = _RAISED[deed]()
        raise why
    if deed == "unkept":
        return float("nan")
    if deed == "longer":
        ctx.extend(60)
    elif deed == "progress":
        ctx.progress(1, 2, message="half")
    elif deed == "enqueue":
        _enqueue(ctx, process.queue, number)
    elif deed == "once":
        _once(ctx, process)
    elif deed == "transact":
        _transact(ctx, process)
    return number


class _Unsaid(Exception):
    """An error that cannot say what is wrong."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


class _ServerError(Exception):
    """As a client of HTTP raises it."""

    status = 503


def _snooze() -> Exception:
    return Snooze(timedelta(seconds=random.choice((1, 20))))


_RAISED: dict[str, Callable[[], Exception]] = {
    "fail": lambda: ValueError("bad luck"),
    "look up": lambda: KeyError("missing") if by_chance(0.5) else LookupError("nowhere"),
    "give up": lambda: FatalError("hopeless"),
    "cancel": lambda: Cancel("not wanted"),
    "later": lambda: RetryableError("busy", after=timedelta(seconds=3)),
    "snooze": _snooze,
    "odd": lambda: random.choice((ConnectionError("away"), _Unsaid(), _ServerError("x" * 5000))),
}


def _enqueue(ctx: Context, queue: Queue, number: int) -> None:
    key = f"follow{number}" if by_chance(0.5) else None
    # With a key that may be another job's: then the completion cannot be written as it is.
    ctx.enqueue(queue.draft("plain", {"number": number + random.choice((1000, 2000))}, key=key))


def _once(ctx: Context, process: Process) -> None:
    with ctx.once("payment") as guard:
        if guard.new:
            process.world.note_effect(ctx.id)
            if by_chance(0.2):
                guard.undo()
                process.world.undo_effect(ctx.id)
            elif by_chance(0.2):
                raise ValueError("the connection was lost")


def _transact(ctx: Context, process: Process) -> None:
    killed = by_chance(0.2) and "kill in write" in process.world.faults
    early = by_chance(0.5)
    with ctx.transaction() as connection:
        connection.execute("insert into effects values (?)", (ctx.id,))
        ctx.set_result(1)
        process.world.note_return(ctx)
        if killed and early:
            process.end()
    if killed:
        process.end()
