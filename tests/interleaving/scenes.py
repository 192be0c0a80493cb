"""Small scenes: what is in the store when a seed begins, and what its actors do. A seed chooses one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from random import Random
from typing import Any

from tests.interleaving import deeds
from tests.interleaving.deeds import LEVELS, claim, enqueue, guest, operate, settle, wanting
from tests.interleaving.stage import MOST_ACTORS, Stage
from tests.interleaving.turns import Actor, Deed
from windlass.clock import from_micros
from windlass.job import Lease, NewJob
from windlass.outcome import Dead, Done
from windlass.policy import Limit, Rate
from windlass.schedule import NewSchedule, Timing
from windlass.settings import ALL
from windlass.store.chains import NewBatch
from windlass.store.engine import Settlement
from windlass.store.fleet import WorkerInfo
from windlass.store.flow import Restriction
from windlass.store.jobs import Edit, Filter
from windlass.store.operations import NewOperation, State

TENANT = "acme"
SCHEDULE = "hourly"


@dataclass
class Facts:
    """What a checker must know of a scene."""

    # How jobs are called in a story.
    names: dict[str, str] = field(default_factory=dict)
    # The most that may run: of a type, of a tenant of a type, and under any limit.
    limits: dict[str, int] = field(default_factory=dict)
    per_tenant: dict[str, int] = field(default_factory=dict)
    total: int | None = None
    # The most that may start of a type.
    starts: dict[str, int] = field(default_factory=dict)
    # Jobs that retention may delete.
    old: set[str] = field(default_factory=set)
    # Keys that are sent with different work.
    clashing: set[str] = field(default_factory=set)


class Scene:
    """A scene in the making."""

    def __init__(self, stage: Stage, seed: int) -> None:
        self.stage = stage
        self.chance = Random(f"scene {seed}")
        self.house = stage.house
        self.facts = Facts()
        self.actors: list[Actor] = []
        self._numbers = count(1)
        self.kind = self.chance.choice([kind for kind, (weight, _) in SCENES.items() for _ in range(weight)])
        SCENES[self.kind][1](self)
        if len(self.actors) == 1:
            self.cast("w9", claim(wanting("w9")), settle("done"))

    def uuid(self) -> str:
        """An id that the same seed makes again."""
        return f"00000000-0000-7000-8000-{next(self._numbers):012x}"

    def draft(self, kind: str = "plain", **options: Any) -> NewJob:
        """A job that is not stored yet."""
        job = NewJob(id=self.uuid(), type=kind, payload=options.pop("payload", b"{}"), **options)
        self.facts.names[job.id] = f"job {len(self.facts.names) + 1}"
        return job

    def stored(self, *drafts: NewJob) -> list[str]:
        """Store jobs before the scene begins."""
        return [each.id for each in self.house.enqueue(drafts)]

    def running(self, worker: str, *types: str) -> list[Lease]:
        """Let a worker claim all that is due."""
        return self.house.claim(wanting(worker, *types)).leases

    def ended(self, leases: Sequence[Lease], *, dead: bool = False) -> None:
        """End jobs before the scene begins."""
        outcome = Dead(deeds.ERROR) if dead else Done()
        self.house.settle([Settlement(each, outcome) for each in leases])

    def cast(self, name: str, *script: Deed, leases: Sequence[Lease] = ()) -> None:
        """Add an actor, if there is room for one more."""
        place = len(self.actors)
        if place < MOST_ACTORS:
            stage = self.stage
            self.actors.append(
                Actor(name, stage.stores[place], script, stage.guests[place], leases=list(leases))
            )

    def maybe(self, share: float = 0.5) -> bool:
        """By chance."""
        return self.chance.random() < share

    def pick(self, *choices: Any) -> Any:
        """One of these."""
        return self.chance.choice(choices)


def _batch(scene: Scene) -> None:
    members = [scene.draft(max_attempts=scene.pick(1, 3)) for _ in range(scene.pick(2, 2, 3))]
    then = scene.draft() if scene.maybe() else None
    batch = NewBatch(id=scene.uuid(), then=then)
    scene.house.enqueue_batch(batch, members)
    waiting = scene.maybe(0.4)
    if waiting:
        scene.house.edit(members[-1].id, Edit(run_at=from_micros(scene.stage.clock.micros() + 10**9)))
    for number, lease in enumerate(scene.running("w0"), 1):
        follow = [scene.draft()] if scene.maybe(0.2) else []
        deed = settle(scene.pick("done", "done", "dead", "retry"), *follow)
        scene.cast(f"w{number}", deeds.transact() if scene.maybe(0.15) else deed, leases=[lease])
    if waiting:
        scene.cast("op", operate(scene.pick("cancel", "bury"), members[-1].id))
    if scene.maybe(0.6):
        more = NewBatch(id=batch.id, extends=True)
        scene.cast("producer", deeds.enqueue_batch(more, scene.draft()))


def _chain(scene: Scene) -> None:
    parents = [scene.draft(max_attempts=1) for _ in range(scene.pick(1, 2, 2))]
    scene.stored(*parents)
    leases = scene.running("w0")
    names = tuple(each.id for each in parents)
    waiting: list[str] = []
    if scene.maybe():
        waiting = scene.stored(scene.draft(depends_on=names, on_dead=scene.pick("wait", "cancel", "run")))
        if scene.maybe(0.3):
            scene.stored(scene.draft(depends_on=tuple(waiting), on_dead="cancel"))
    for number, lease in enumerate(leases, 1):
        deed = settle(scene.pick("done", "done", "done", "dead", "release"))
        scene.cast(f"w{number}", deed, leases=[lease])
    child = scene.draft(depends_on=names, on_dead=scene.pick("wait", "cancel", "run"))
    if scene.maybe(0.6):
        scene.cast("producer", enqueue(child))
    elif scene.maybe():
        scene.cast("guest", guest(scene.pick(*LEVELS), child, looks=scene.maybe()))
    if scene.maybe(0.4):
        now = from_micros(scene.stage.clock.micros())
        job = scene.pick(*waiting, *names)
        later = deeds.edit(job, Edit(run_at=now))
        scene.cast("op", scene.pick(operate("cancel", job), operate("replay", job), later))
    if scene.maybe(0.2):
        scene.cast("w9", claim(wanting("w9")), settle("done"))


def _unique(scene: Scene) -> None:
    def new(**options: Any) -> NewJob:
        until = scene.pick("done", "start")
        return scene.draft(unique="only", unique_until=until, max_attempts=2, **options)

    before = scene.pick("none", "none", "pending", "running", "dead")
    held = scene.stored(new()) if before != "none" else []
    leases = scene.running("w0") if before in ("running", "dead") else []
    if before == "dead":
        scene.ended(leases, dead=True)
    for number in range(scene.pick(1, 2, 2)):
        on = scene.pick("skip", "skip", "replace", "error")
        other = [scene.draft()] if scene.maybe(0.2) else []
        scene.cast(f"producer {number + 1}", enqueue(new(on_unique=on), *other))
    if scene.maybe(0.4):
        deed = guest(scene.pick(*LEVELS), new(), looks=scene.maybe(), commits=scene.maybe(0.8))
        scene.cast("guest", deed)
    if before == "dead":
        scene.cast("op", operate("replay", held[0]))
    if before == "running":
        scene.cast("w0", settle(scene.pick("done", "retry", "dead")), leases=leases)
    if scene.maybe():
        scene.cast("w1", claim(wanting("w1")), settle(scene.pick("done", "retry", "release")))


def _keys(scene: Scene) -> None:
    names, old = ["key one", "key two"], scene.maybe(0.4)
    if old:
        scene.facts.old |= set(scene.stored(scene.draft(key=names[0])))
        scene.ended(scene.running("w0"))
        scene.stage.clock.advance(timedelta(hours=2))
    if scene.maybe(0.2):
        scene.facts.clashing |= set(names)

    def drafts() -> list[NewJob]:
        given = scene.chance.sample(names, scene.pick(1, 1, 2))
        body = scene.pick(b"{}", b'{"n": 1}') if scene.facts.clashing else b"{}"
        tenant = TENANT if scene.maybe(0.2) else ""
        return [scene.draft(key=name, payload=body, tenant=tenant) for name in given]

    for number in range(scene.pick(1, 2, 2)):
        scene.cast(f"producer {number + 1}", enqueue(*drafts()))
    for number in range(scene.pick(1, 1, 2)):
        deed = guest(scene.pick(*LEVELS), *drafts(), looks=scene.maybe(), commits=scene.maybe(0.8))
        scene.cast(f"guest {number + 1}", deed)
    if old:
        scene.cast("pruner", deeds.prune())


def _limits(scene: Scene) -> None:
    facts = scene.facts
    kind = scene.pick("type", "type", "key", "tenant", "rate", "all")
    most = scene.pick(1, 1, 2)
    limit = Limit(concurrency=most)
    if kind == "tenant":
        limit, facts.per_tenant["limited"] = Limit(concurrency=3, per_tenant=1), 1
    elif kind == "rate":
        limit, facts.starts["limited"] = Limit(rate=Rate(1, 3600, burst=most)), most
    elif kind == "all":
        facts.total = most
    else:
        facts.limits["limited"] = most
    name = ALL if kind == "all" else "limited"
    restricted = {"limited": Restriction(limits={name: limit}, key="crm" if kind == "key" else "")}
    tenants = ("", "", "") if kind != "tenant" else (TENANT, TENANT, "")
    jobs = scene.stored(*(scene.draft("limited", tenant=each, max_attempts=3) for each in tenants))
    if scene.maybe(0.7):
        # One has counted under the limit before: else the first two wait for each other's row of it.
        before = scene.house.claim(wanting("w0", "limited", limit=1, restricted=restricted)).leases
        if scene.maybe(0.7):
            scene.ended(before)
            scene.stage.clock.advance(timedelta(hours=12))
    # One that does not know of the limit: what it takes does not count, if it was not put back before.
    knows_all = scene.maybe(0.6)
    for number in range(scene.pick(2, 2, 3)):
        types = ("limited", "plain") if scene.maybe(0.2) else ("limited",)
        want = wanting(f"w{number + 1}", *types, limit=scene.pick(1, 2, 3), restricted=restricted)
        how = scene.pick("done", "retry", "release", "snooze") if knows_all else "done"
        after = [settle(how)] if kind != "rate" and scene.maybe() else []
        scene.cast(f"w{number + 1}", claim(want), *after)
    if not knows_all:
        scene.cast("old worker", claim(wanting("w8", "limited", limit=1)))
        facts.starts.clear()
    if scene.maybe(0.3):
        scene.cast("op", operate(scene.pick("cancel", "bury"), scene.pick(*jobs)))


def _claims(scene: Scene) -> None:
    for number in range(3):
        scene.house.join(_worker(f"w{number}"))
    held = scene.stored(scene.draft(max_attempts=scene.pick(1, 3)))
    leases = scene.running("w0") if scene.maybe(0.7) else []
    if leases and scene.maybe():
        scene.stage.clock.advance(2 * deeds.LEASE)
    tenant = scene.pick("", TENANT)
    jobs = held + scene.stored(
        scene.draft(priority=scene.pick(5, 9), tenant=tenant), scene.draft(max_attempts=1)
    )
    if leases:
        how = settle(scene.pick("done", "retry", "dead", "snooze", "release"))
        scene.cast("w0", *scene.pick([how], [deeds.extend(), how], [deeds.transact()]), leases=leases)
    if leases and scene.maybe():
        scene.cast("reaper", scene.pick(deeds.reap(), deeds.declare_dead("w0", 0)))
    mark = "00000000000000ab" if scene.maybe(0.3) else None
    found, limit = scene.pick((0, 20), (0, 2), (5, 3))
    for number in (1, 2):
        worker = "w1" if mark else f"w{number}"
        want = wanting(worker, limit=limit, mark=mark)
        after = [] if mark else [settle(scene.pick("done", "retry", "release"))]
        scene.cast(f"w{number}", claim(want, found=found), *after)
    verb = scene.pick("cancel", "bury", "cancel", "bury", "edit")
    job = scene.pick(*jobs)
    change = deeds.edit(job, Edit(priority=1)) if verb == "edit" else operate(verb, job)
    scene.cast("op", change, *([operate("replay", job)] if verb == "bury" else []))


def _duel(scene: Scene) -> None:
    """One running job whose holder settles it, while others act on the same row."""
    [job] = scene.stored(scene.draft(max_attempts=3))
    how = settle(scene.pick("done", "retry", "release", "dead"))
    scene.cast("w0", how, leases=scene.running("w0"))
    child = scene.draft(depends_on=(job,), on_dead=scene.pick("wait", "cancel", "run"))
    attach = scene.pick(enqueue(child), enqueue(child), guest(scene.pick(*LEVELS), child))
    stop = operate(scene.pick("cancel", "bury"), job)
    for name, deed in scene.pick(
        [("op", stop)], [("producer", attach)], [("op", stop), ("producer", attach)]
    ):
        scene.cast(name, deed)


def _worker(name: str) -> WorkerInfo:
    return WorkerInfo(
        id=name, host="here", boot="", pid_space="", pid=1, pid_started=1, version="1", types=("*",), slots=1
    )


def _schedules(scene: Scene) -> None:
    timing = Timing(
        every=timedelta(minutes=30), catch_up=scene.pick("last", "all"), overlap=scene.pick("skip", "queue")
    )
    scene.house.add_schedule(NewSchedule(name=SCHEDULE, timing=timing, type="plain"), by="house")
    scene.stage.clock.advance(timedelta(minutes=70))
    for number in range(scene.pick(1, 2, 2)):
        scene.cast(f"scheduler {number + 1}", deeds.fire())
    if scene.maybe(0.7):
        pauses = [deeds.switch("pause_schedule", SCHEDULE)]
        scene.cast("op 1", *pauses, *([deeds.switch("resume_schedule", SCHEDULE)] if scene.maybe() else []))
    if scene.maybe(0.4):
        scene.cast("op 2", deeds.switch(scene.pick("run_schedule", "pause_schedule"), SCHEDULE))
    if scene.maybe(0.3):
        scene.cast("w1", claim(wanting("w1")), settle("done"))


def _operations(scene: Scene) -> None:
    jobs = scene.stored(*(scene.draft() for _ in range(scene.pick(2, 3))))
    operation, verb = scene.uuid(), scene.pick("cancel", "bury")
    new = NewOperation(id=operation, action=verb, where=Filter(types=("plain",)))
    scene.house.start_operation(new, by="house")
    for number in range(scene.pick(1, 2, 2)):
        scene.cast(f"carrier {number + 1}", deeds.carry(operation))
    if scene.maybe(0.6):
        state = scene.pick(State.PAUSED, State.STOPPED)
        again = [deeds.steer(operation, State.RUNNING)] if state is State.PAUSED and scene.maybe() else []
        scene.cast("op", deeds.steer(operation, state), *again)
    if scene.maybe(0.4):
        scene.cast("w1", claim(wanting("w1", limit=1)), settle(scene.pick("done", "retry")))
    if scene.maybe(0.3):
        scene.cast("op 2", operate(scene.pick("cancel", "bury"), scene.pick(*jobs)))


def _retention(scene: Scene) -> None:
    key = "key one"
    [job] = scene.stored(scene.draft(key=key, max_attempts=1))
    scene.facts.old.add(job)
    leases = scene.running("w0")
    if scene.maybe(0.3):
        scene.facts.old |= set(scene.stored(scene.draft(depends_on=(job,), on_dead="wait")))
    scene.ended(leases, dead=True)
    scene.stage.clock.advance(timedelta(hours=2))
    for number in range(scene.pick(1, 1, 2)):
        scene.cast(f"pruner {number + 1}", deeds.prune())
    request = scene.pick("", "one request")
    for number in range(scene.pick(1, 2)):
        verb = scene.pick("replay", "replay", "discard")
        scene.cast(f"op {number + 1}", operate(verb, job, request_id=request))
    if scene.maybe(0.6):
        scene.cast("producer", enqueue(scene.draft(key=key)))
    if scene.maybe(0.3):
        scene.cast("w1", claim(wanting("w1")), settle("done"))


def _switches(scene: Scene) -> None:
    for number in range(scene.pick(2, 3)):
        verbs = [scene.pick("pause", "resume") for _ in range(scene.pick(1, 2))]
        script = [deeds.switch(verb, "plain") for verb in verbs]
        if scene.maybe(0.3):
            script.append(deeds.set_setting("keep_ended", f"{scene.pick(1, 2)}d"))
        scene.cast(f"op {number + 1}", *script)


# How often of all, and how it is made.
SCENES: dict[str, tuple[int, Callable[[Scene], None]]] = {
    "batch": (3, _batch),
    "chain": (4, _chain),
    "unique": (3, _unique),
    "keys": (3, _keys),
    "limits": (4, _limits),
    "claims": (4, _claims),
    "duel": (4, _duel),
    "schedules": (2, _schedules),
    "operations": (2, _operations),
    "retention": (2, _retention),
    "switches": (1, _switches),
}
