"""Producers and operators: what they ask for, and what they were answered."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from windlass.errors import StoreError, WindlassError
from windlass.job import NewJob
from windlass.ops import Ops
from windlass.testing.simulation.application import LIMIT, TICK, TYPES
from windlass.testing.simulation.process import Process, When

if TYPE_CHECKING:
    from windlass.testing.simulation.world import World

_MOST_LIVE_JOBS = 60
_KEYS = 6
_NAMES = 3


class Call(NamedTuple):
    """Something that was asked for, and the answer (None: it got lost)."""

    step: int
    verb: str
    asked: Any
    answer: Any


class Person(Process):
    """A process whose requests are recorded."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name, release=1)
        self.calls: list[Call] = []

    def do(self, what: str) -> None:
        """Ask for something, or lose the next answer."""
        if what == "lost answer":
            self.fault = (random.choice(list(When)), False)
        else:
            self.ask(what)

    def ask(self, what: str) -> None:
        """Ask for something."""
        raise NotImplementedError(what)

    def call(self, verb: str, asked: Any, act: Callable[[], Any]) -> bool:
        """Record a request and its answer; False if the answer got lost."""
        try:
            answer = act()
        except StoreError as error:
            self.world.note(f"no answer: {error}")
            self.calls.append(Call(self.world.steps, verb, asked, None))
            return False
        except WindlassError as error:
            # Nothing was changed.
            self.world.note(f"refused: {error}")
            return True
        self.calls.append(Call(self.world.steps, verb, asked, answer))
        return True


class Producer(Person):
    """Enqueues jobs of all kinds, and sends again what was not answered."""

    def __init__(self, world: World) -> None:
        super().__init__(world, "producer")
        self._unsure: list[list[NewJob]] = []

    def options(self) -> Iterable[tuple[str, float]]:
        """What it could do now, and how likely that is."""
        if "lost answer" in self.world.faults:
            yield "lost answer", 0.2
        yield "checkpoint", 0.1
        if self._unsure:
            yield "send again", 1.0
        if self.world.checker.live < _MOST_LIVE_JOBS:
            yield from dict.fromkeys(("enqueue", "many", "key", "unique", "child", "batch"), 0.6).items()

    def ask(self, what: str) -> None:
        """Enqueue something."""
        if what == "checkpoint":
            checkpointer = self.writer._checkpointer  # noqa: SLF001
            assert checkpointer is not None  # noqa: S101 - the file is open
            checkpointer.run(self.writer._connection)  # type: ignore[arg-type]  # noqa: SLF001
        elif what == "batch":
            drafts = [self._draft("plain") for _ in range(random.randint(1, 3))]
            self.call("batch", drafts, lambda: self._send_batch(drafts))
        else:
            drafts = self._unsure.pop() if what == "send again" else self._drafts(what)
            send = partial(self.queue.enqueue_many, drafts)
            if not self.call("enqueue", drafts, lambda: [handle.id for handle in send()]):
                self._unsure.append(drafts)

    def _send_batch(self, drafts: list[NewJob]) -> list[str]:
        with self.queue.batch("some") as batch:
            batch.add(*drafts)
            batch.then(self._draft("plain"))
        return [handle.id for handle in batch.jobs]

    def _drafts(self, what: str) -> list[NewJob]:
        options: dict[str, Any] = {
            "priority": random.randint(0, 10),
            "delay": random.choice((None, None, 1, 20)),
        }
        known = self.world.checker.known
        if what == "key":
            key = random.randrange(_KEYS)
            return [self._draft("plain", number=key, key=f"key{key}")]
        if what == "unique":
            options |= {
                "unique": f"name{random.randrange(_NAMES)}",
                "until": random.choice(("start", "done")),
            }
            options["on_unique"] = random.choice(("skip", "replace"))
        if what == "child" and known:
            options["depends_on"] = random.sample(known, min(2, len(known)))
            options["on_dead"] = random.choice(("wait", "cancel", "run"))
        count = 3 if what == "many" else 1
        return [self._draft(random.choice(TYPES), **options) for _ in range(count)]

    def _draft(self, kind: str, number: int | None = None, **options: Any) -> NewJob:
        payload = {"number": self.world.steps if number is None else number}
        return self.queue.draft(kind, payload, **options)


class Operator(Person):
    """Stops, buries, replays, pauses, limits and drains."""

    def __init__(self, world: World) -> None:
        super().__init__(world, "operator")
        self._ops = Ops(self.store, by=self.name)

    def options(self) -> Iterable[tuple[str, float]]:
        """What it could do now, and how likely that is."""
        if "lost answer" in self.world.faults:
            yield "lost answer", 0.1
        verbs = ["pause", "resume", "limit", "run schedule"]
        verbs += ["cancel", "bury", "priority"] if self.world.checker.known else []
        verbs += ["replay"] if self.world.checker.dead else []
        yield from dict.fromkeys(verbs, 0.25).items()
        if self.world.workers:
            yield "drain", 0.05

    def ask(self, what: str) -> None:
        """Act on something."""
        checker, ops = self.world.checker, self._ops
        asked: str = random.choice(TYPES)
        act: Callable[[str], Any] = getattr(ops, what, ops.pause)
        if what in ("cancel", "bury", "priority", "replay"):
            asked = random.choice(checker.dead if what == "replay" else checker.known)
        if what == "priority":
            act = partial(ops.priority, priority=random.randint(0, 10))
        elif what == "limit":
            asked = str(random.randint(1, LIMIT))
            act = self._limit
        elif what == "drain":
            asked = random.choice(self.world.workers).fleet_id
        elif what == "run schedule":
            asked, act = TICK, ops.schedules.run
        self.call(what, asked, lambda: act(asked))

    def resume_all(self) -> None:
        """Nothing is paused any more."""
        for kind in TYPES:
            self.call("resume", kind, partial(self._ops.resume, kind))

    def _limit(self, most: str) -> Any:
        return self._ops.set_limit("limited", {"concurrency": most})
