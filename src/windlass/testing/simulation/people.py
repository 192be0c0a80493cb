"""Producers, operators and a scheduler of its own: what they ask for, and what they were answered."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from windlass.clock import from_micros
from windlass.errors import InvalidPayload, StoreError, WindlassError
from windlass.job import NewJob
from windlass.ops import Ops, ScheduleWish
from windlass.ops.access import KeyWish
from windlass.store.chains import NewBatch
from windlass.store.flow import BreakerState
from windlass.store.history import Step
from windlass.store.jobs import Filter
from windlass.testing.simulation.application import LIMIT, SCHEDULED, TENANTS, TICK, TYPES
from windlass.testing.simulation.determinism import by_chance
from windlass.testing.simulation.process import Fault, Process
from windlass.upkeep.scheduler import Scheduler

if TYPE_CHECKING:
    from windlass.testing.simulation.world import World

_MOST_LIVE_JOBS = 60
_KEYS = 6
_NAMES = 3
# Records older than this go when an operator prunes.
PRUNED_AFTER = timedelta(seconds=60)


class Call(NamedTuple):
    """Something that was asked for, and the answer (None: it got lost)."""

    step: int
    verb: str
    asked: Any
    answer: Any
    # Names the request; the same when it is sent again.
    request: str = ""


class Person(Process):
    """A process whose requests are recorded."""

    def __init__(self, world: World, name: str, release: int = 1) -> None:
        super().__init__(world, name, release)
        self.calls: list[Call] = []

    def do(self, what: str) -> None:
        """Ask for something, or lose the next answer."""
        if what == "lost answer":
            self.fault = Fault.drawn()
        else:
            self.ask(what)

    def ask(self, what: str) -> None:
        """Ask for something."""
        raise NotImplementedError(what)

    def call(self, verb: str, asked: Any, act: Callable[[], Any], request: str = "") -> bool:
        """Record a request and its answer; False if the answer got lost."""
        try:
            answer = act()
        except StoreError as error:
            self.world.note(f"no answer: {error}")
            answer = None
        except WindlassError as error:
            # Nothing was changed.
            self.world.note(f"refused: {error}")
            return True
        self.calls.append(Call(self.world.steps, verb, asked, answer, request))
        return answer is not None


class Producer(Person):
    """Enqueues jobs of all kinds, and sends again what was not answered."""

    def __init__(self, world: World, name: str, release: int) -> None:
        super().__init__(world, name, release)
        self._unsure: list[list[NewJob]] = []
        self._batches: list[str] = []

    def options(self) -> Iterable[tuple[str, float]]:
        """What it could do now, and how likely that is."""
        if "lost answer" in self.world.faults:
            yield "lost answer", 0.2
        yield "checkpoint", 0.1
        if self._unsure:
            yield "send again", 1.0
        if self.world.checker.live < _MOST_LIVE_JOBS:
            wanted = (
                "enqueue",
                "many",
                "key",
                "unique",
                "child",
                "batch",
                "add to batch",
                "own rows",
                "by name",
            )
            yield from dict.fromkeys(wanted, 0.4).items()

    def ask(self, what: str) -> None:
        """Enqueue something."""
        if what == "checkpoint":
            self._checkpoint()
        elif what in ("batch", "add to batch"):
            drafts = [self._draft("plain") for _ in range(random.randint(1, 3))]
            send_batch = self._add_to_batch if what == "add to batch" else self._send_batch
            self.call("batch", drafts, lambda: send_batch(drafts))
        elif what == "own rows":
            drafts = self._drafts("enqueue")
            self.call("own rows", drafts, lambda: self._send_with_rows(drafts))
        elif what == "by name":
            self._send_by_name()
        else:
            drafts = self._unsure.pop() if what == "send again" else self._drafts(what)
            send = partial(self.queue.enqueue_many, drafts)
            if not self.call("enqueue", drafts, lambda: [handle.id for handle in send()]):
                self._unsure.append(drafts)

    def _checkpoint(self) -> None:
        if self.writer._connection is None:  # noqa: SLF001
            self.store.settings()
            return
        checkpointer = self.writer._checkpointer  # noqa: SLF001
        assert checkpointer is not None  # noqa: S101 - the file is open
        checkpointer.empty(self.writer._connection)  # noqa: SLF001

    def _send_batch(self, drafts: list[NewJob]) -> list[str]:
        with self.queue.batch("some") as batch:
            batch.add(*drafts)
            if by_chance(0.7):
                batch.then(self._draft("plain"))
        self._batches.append(batch.id)
        return [handle.id for handle in batch.jobs]

    def _add_to_batch(self, drafts: list[NewJob]) -> list[str]:
        """As a server does for a client that sends a large batch piece by piece."""
        self.queue.publish()
        new = NewBatch(id=random.choice(self._batches or [drafts[0].id]), extends=True)
        return [done.id for done in self.store.enqueue_batch(new, drafts)]

    def _send_with_rows(self, drafts: list[NewJob]) -> list[str] | None:
        """In a transaction of the application's own, which commits or does not."""
        self._reach()
        with closing(sqlite3.connect(self.world.path, isolation_level=None)) as connection:
            connection.execute("begin immediate")
            self.queue.enqueue_many(drafts, connection=connection)
            connection.executemany("insert into orders values (?)", [(draft.id,) for draft in drafts])
            if by_chance(0.3):
                connection.execute("rollback")
                return []
            try:
                connection.execute("commit")
            except sqlite3.OperationalError as error:
                self.world.note(f"the application's own commit failed: {error}")
                return []
            return [draft.id for draft in drafts]

    def _send_by_name(self) -> None:
        """What only the second release takes: the first goes by what live releases have registered."""
        payload = {"number": self.world.steps, "extra": 1}
        try:
            draft = self.queue.draft("plain", payload)
        except InvalidPayload as error:
            self.calls.append(Call(self.world.steps, "refused by name", payload, str(error)))
        else:
            self.call("enqueue", [draft], lambda: [each.id for each in self.queue.enqueue_many([draft])])

    def _drafts(self, what: str) -> list[NewJob]:
        options: dict[str, Any] = {
            "priority": random.randint(0, 7),
            "delay": random.choice((None, None, 1, 20)),
            "tenant": random.choice(TENANTS) or None,
        }
        known = self.world.checker.known
        if what == "key":
            key = random.randrange(_KEYS)
            return [self._draft("plain", number=key, key=f"key{key}", tenant=options["tenant"])]
        if what == "unique":
            options |= {
                "unique": f"name{random.randrange(_NAMES)}",
                "until": random.choice(("start", "done")),
                "on_unique": random.choice(("skip", "replace", "error")),
                "key": random.choice((None, None, f"unique{random.randrange(_KEYS)}")),
            }
        if what == "child" and known:
            options["depends_on"] = random.sample(known, min(2, len(known)))
            options["on_dead"] = random.choice(("wait", "cancel", "run"))
        count = 3 if what == "many" or (what == "unique" and by_chance(0.2)) else 1
        return [self._draft(random.choice(TYPES), **options) for _ in range(count)]

    def _draft(self, kind: str, number: int | None = None, **options: Any) -> NewJob:
        payload = {"number": self.world.steps if number is None else number}
        if kind == "plain" and number is None and self.release > 1 and by_chance(0.2):
            payload["extra"] = 1
        return self.queue.draft(kind, payload, **options)


# What operators do to one job, and in which states that makes sense.
_ON_JOBS = {
    "cancel": (),
    "bury": (),
    "priority": (),
    "reschedule": (),
    "edit": (),
    "replay": ("dead",),
    "discard": ("dead",),
    "rerun": ("completed", "cancelled", "discarded"),
}
_BY_ITSELF = (
    *("pause", "resume", "limit", "breaker", "settings", "prune", "run schedule", "pause schedule"),
    *(
        "resume schedule",
        "add schedule",
        "remove schedule",
        "many",
        "steer",
        "keys",
        "confirm",
        "look",
        "look at job",
    ),
)
_SETTINGS = {
    "plain.max_attempts": ("1", "4"),
    "flaky.retry.base": ("1s", "5s"),
    "slow.timeout": ("5s", "30s"),
    "low_share": ("0.2", "0"),
    "keep_ended": ("1h", "7d"),
    "*.concurrency": ("4", "none"),
    "key:crm.concurrency": ("1", "2"),
    "flaky.breaker.jobs": ("2", "10"),
    "flaky.breaker.probe": ("5s", "1m"),
    "shared.tenant_concurrency": ("2", "1"),
    "old.hard_depth": ("1", "100"),
}


class Operator(Person):
    """Stops, buries, replays, pauses, limits, prunes and drains; sends again what was not answered."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self._unsure: list[tuple[str, Any, Callable[[], Any], str]] = []
        self._operations: list[str] = []
        self._made: list[str] = []

    def options(self) -> Iterable[tuple[str, float]]:
        """What it could do now, and how likely that is."""
        if "lost answer" in self.world.faults:
            yield "lost answer", 0.1
        if self._unsure:
            yield "ask again", 0.5
        checker = self.world.checker
        yield from dict.fromkeys(_BY_ITSELF, 0.1).items()
        yield "settings", 0.2
        for verb, states in _ON_JOBS.items():
            if any(checker.in_state.get(state) for state in states) if states else checker.known:
                yield verb, 0.2
        if self.world.workers:
            yield "drain", 0.05

    def ask(self, what: str) -> None:
        """Act on something."""
        request = f"{self.name}-{self.world.steps}"
        if what == "ask again":
            what, asked, act, request = self._unsure.pop()
        elif what in _ON_JOBS:
            asked, act = self._on_job(what, request)
        else:
            asked, act = getattr(self, "_" + what.replace(" ", "_"))(self._ops(request))
        if not self.call(what, asked, act, request):
            self._unsure.append((what, asked, act, request))

    def _ops(self, request: str = "", by: str = "") -> Ops:
        return Ops(self.store, by=by or self.name, request_id=request, clock=self.world.clock)

    def _on_job(self, what: str, request: str) -> tuple[str, Callable[[], Any]]:
        checker, ops = self.world.checker, self._ops(request)
        states = _ON_JOBS[what]
        asked = random.choice(
            [each for state in states for each in checker.in_state.get(state, ())] or checker.known
        )
        more: dict[str, Any] = {}
        if what == "priority":
            more = {"priority": random.randint(0, 7)}
        elif what == "reschedule":
            more = {"delay": timedelta(seconds=random.choice((0, 10)))}
        elif what == "edit" or (what == "replay" and by_chance(0.3)):
            more = {"payload": {"number": self.world.steps}}
        if what in ("replay", "rerun"):
            more["confirm"] = True
        return asked, partial(getattr(ops, what), asked, **more)

    # --- what it asks for, and the call that does it ---

    def _pause(self, ops: Ops) -> tuple[str, Callable[[], Any]]:
        kind = random.choice(TYPES)
        return kind, partial(ops.pause, kind)

    def _resume(self, ops: Ops) -> tuple[str, Callable[[], Any]]:
        kind = random.choice(TYPES)
        return kind, lambda: str(ops.resume(kind))

    def _limit(self, ops: Ops) -> tuple[str, Callable[[], Any]]:
        most = str(random.randint(1, LIMIT))
        return most, partial(ops.set_limit, "limited", {"concurrency": most})

    def _settings(self, ops: Ops) -> tuple[str, Callable[[], Any]]:
        name = random.choice(list(_SETTINGS))
        value = random.choice((*_SETTINGS[name], None))
        return name, partial(ops.set_settings, {name: value})

    def _breaker(self, ops: Ops) -> tuple[str, Callable[[], Any]]:
        name, state = random.choice((*TYPES, "key:crm")), random.choice(list(BreakerState))
        return name, partial(ops.set_breaker, name, state)

    def _prune(self, ops: Ops) -> tuple[str, Callable[[], Any]]:
        return "", lambda: str(ops.prune(ended=PRUNED_AFTER, dead=PRUNED_AFTER))

    def _drain(self, ops: Ops) -> tuple[str, Callable[[], Any]]:
        asked = random.choice(self.world.workers).fleet_id
        return asked, partial(ops.drain, asked)

    def _run_schedule(self, ops: Ops) -> tuple[str, Callable[[], Any]]:
        name = random.choice(SCHEDULED)
        return name, partial(ops.schedules.run, name)

    def _pause_schedule(self, ops: Ops) -> tuple[str, Callable[[], Any]]:
        name = random.choice(SCHEDULED)
        return name, partial(ops.schedules.pause, name)

    def _resume_schedule(self, ops: Ops) -> tuple[str, Callable[[], Any]]:
        name = random.choice(SCHEDULED)
        return name, partial(ops.schedules.resume, name)

    def _add_schedule(self, ops: Ops) -> tuple[str, Callable[[], Any]]:
        name = random.choice((TICK, "extra"))
        timing = random.choice(({"every": "40s"}, {"cron": "*/2 * * * *"}))
        wish = ScheduleWish(name=name, type=TICK, timing=timing)  # type: ignore[arg-type]
        return name, partial(ops.schedules.add, wish, replace=by_chance(0.7))

    def _remove_schedule(self, ops: Ops) -> tuple[str, Callable[[], Any]]:
        name = random.choice((*SCHEDULED, "extra"))
        return name, partial(ops.schedules.remove, name)

    def _many(self, ops: Ops) -> tuple[str, Callable[[], Any]]:
        """One action for many jobs."""
        action = random.choice(("cancel", "bury", "replay", "discard", "priority"))
        kind = random.choice(TYPES)
        arguments: dict[str, dict[str, Any]] = {"priority": {"priority": 3}, "replay": {"confirm": True}}
        more = arguments.get(action, {})
        where = Filter(types=(kind,), older_than=random.choice((None, timedelta(seconds=5))))
        many = self._ops(ops.request_id, by=f"{self.name} with many").operations

        def start() -> str:
            found = many.start(
                action, where, limit=random.choice((None, 5)), rate=random.choice((None, 2)), **more
            )
            self._operations.append(found.id)
            return found.id

        return action, start

    def _steer(self, ops: Ops) -> tuple[str, Callable[[], Any]]:
        if not self._operations:
            return "", ops.operations.list
        asked = random.choice(self._operations)
        steer = random.choice(
            (ops.operations.pause, ops.operations.resume, ops.operations.stop, ops.operations.show)
        )
        return asked, partial(steer, asked)

    def _keys(self, ops: Ops) -> tuple[str, Callable[[], Any]]:
        if self._made and by_chance(0.5):
            asked = random.choice((*self._made, "unknown"))
            return asked, partial(ops.revoke_key, asked)

        def make() -> str:
            self._made.append(ops.create_key(KeyWish(name="billing", roles=("producer",))).id)
            return self._made[-1]

        return "", make

    def _confirm(self, _: Ops) -> tuple[str, Callable[[], Any]]:
        asked = random.choice(self.world.checker.known or ["none"])
        return asked, lambda: str(self.store.confirm(asked))

    def _look(self, ops: Ops) -> tuple[str, Callable[[], Any]]:
        look = random.choice(
            (
                *(ops.status, ops.signals, ops.types, ops.workers, ops.metrics, ops.alerts, ops.autoscale),
                *(ops.scrape, ops.dead_groups, ops.database, ops.keys, ops.audit, ops.settings),
                *(ops.schedules.list, ops.operations.list, self.store.status, self.store.check),
                *(ops.history, partial(ops.audit, who=self.name, limit=1), self.store.releases),
                *(partial(ops.schedules.show, TICK), partial(self.store.api_keys_used, self._made)),
                *(partial(self.store.failures, limit=5), partial(ops.dead_groups, TYPES[:3])),
                *(partial(self._turn_pages, ops), self._tell),
                partial(self._look_back, ops),
            )
        )
        return "", lambda: [look()]

    def _turn_pages(self, ops: Ops) -> None:
        """Two pages of the jobs, and two of what one operator did."""
        first = ops.find(Filter(), limit=1)
        ops.find(Filter(), limit=1, cursor=first.next)
        noted = ops.audit(who=self.name, limit=1)
        ops.audit(who=self.name, limit=1, cursor=noted.next)

    def _tell(self) -> None:
        """Send an alert or its end, as a server does; now and then no one could be reached."""
        held = {("WindlassDeadJobs", "{}"): 1.0} if self.world.checker.in_state.get("dead") else {}
        for each in self.store.notice(held):
            fires = (each.name, each.labels) in held
            if self.store.may_tell(each.name, each.labels, fires=fires):
                self.store.told(each.name, each.labels, fires=random.choice((fires, None)))

    def _look_back(self, ops: Ops) -> None:
        now = from_micros(self.world.clock.micros())
        self.store.history_of_others(Step.HOUR, now - timedelta(days=1), now, types=TYPES[:2])
        for batch in {job["batch"] for job in self.world.checker.rows.values() if job["batch"]}:
            ops.batch(batch)

    def _look_at_job(self, ops: Ops) -> tuple[str, Callable[[], Any]]:
        asked = random.choice(self.world.checker.known or ["none"])
        where = random.choice(_SEARCHES)
        looks = (ops.explain, self.store.progress, lambda job: ops.ties(ops.show(job)))
        return asked, lambda: [*(look(asked) for look in looks), ops.find(where, limit=5)]

    # --- the end ---

    def resume_all(self) -> None:
        """Nothing is paused, set or open by hand any more."""
        ops = self._ops()
        for kind in TYPES:
            self.call("resume", kind, lambda kind=kind: str(ops.resume(kind)))  # type: ignore[misc]
        for name in (*TYPES, "key:crm"):
            self.call("breaker", name, partial(ops.set_breaker, name, BreakerState.AUTO))
        for name in _SETTINGS:
            self.call("settings", name, partial(ops.set_settings, {name: None}))
        for each in self.store.operations(limit=1000):
            if each.state == "paused":
                self.call("steer", each.id, partial(ops.operations.resume, each.id))


_SEARCHES = (
    Filter(),
    Filter(tenant="acme", view="due"),
    Filter(types=("flaky", "plain"), error="bad"),
    Filter(error="=ValueError", older_than=timedelta(seconds=10)),
    Filter(payload={("number",): 1}, view="retrying"),
)


class Timekeeper(Process):
    """A process that only fires schedules, as `windlass scheduler` is."""

    def __init__(self, world: World, name: str, release: int) -> None:
        super().__init__(world, name, release)
        self._scheduler = Scheduler(self.store, self.queue.wakeup)

    def options(self) -> Iterable[tuple[str, float]]:
        """What it could do now, and how likely that is."""
        yield "scheduler", 0.3
        if "lost answer" in self.world.faults:
            yield "lost answer", 0.05

    def do(self, what: str) -> None:
        """Look at the schedules, or lose the next answer."""
        if what == "scheduler":
            self._scheduler.tick()
        else:
            self.fault = Fault.drawn()
