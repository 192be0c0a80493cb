"""The parts of a worker, and how they are put together."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from functools import partial
from importlib.metadata import version

import msgspec

from windlass.clock import Clock
from windlass.config import PoolConfig, WorkerConfig, app_version, ring
from windlass.errors import must_be
from windlass.loop import Loop
from windlass.observe.ledger import Ledger
from windlass.registry import SHELL, Handler, Registry, shell_handler
from windlass.size import size_text
from windlass.store.fleet import Look, PoolInfo, Vitals, WorkerInfo
from windlass.store.schedules import digest_of
from windlass.store.store import Store
from windlass.upkeep.maintenance import PROMOTE, Pruner, Ticks
from windlass.upkeep.membership import Membership, Watchman, here, is_gone
from windlass.upkeep.reaper import Reaper
from windlass.upkeep.scheduler import Declarer, Scheduler
from windlass.wakeup import Wakeup
from windlass.worker.admission import Admission, BreakerCounts, LiveSettings
from windlass.worker.children.children import Children
from windlass.worker.children.process_tree import process_tags, resident
from windlass.worker.claimer import Claimer
from windlass.worker.heartbeat import Heartbeat
from windlass.worker.memory import SHARE_OF_MACHINE, MemoryBudget, machine_memory
from windlass.worker.pool import PollTriggers, Pool
from windlass.worker.run import Env, Run
from windlass.worker.runner import Runner
from windlass.worker.settler import OtherReleases, Settler
from windlass.worker.shell import Shell
from windlass.worker.timeouts import Leaks, Timeouts
from windlass.worker.verifier import Verifier
from windlass.worker.watchdog import EMBEDDED, Guard, Liveness, Watched


class Parts:
    """Everything that one worker is made of, wired once."""

    def __init__(
        self,
        store: Store,
        wakeup: Wakeup,
        registry: Registry,
        config: WorkerConfig,
        *,
        clock: Clock,
        asked_to_drain: Callable[[], None],
        chance: Callable[[], float] = random.random,
        watched: Watched = EMBEDDED,
    ) -> None:
        self._asked_to_drain = asked_to_drain
        self._registry = registry
        self.draining = False
        self.handlers = choose_handlers(registry, config)
        self.types = {name: handler.version for name, handler in self.handlers.items()}
        self.pools = make_pools(self.handlers, config)
        self.app = app_version() or registry.app_version
        self.ledger = ledger = Ledger(store, self.app)
        self.membership = Membership(here(), clock)
        self.runs: dict[str, Run] = {}
        self.env = env = Env(
            store, wakeup, clock, config, ledger, self.membership, self.handlers, self.runs, self.app, chance
        )
        self.declarer = Declarer(store, registry, self.handlers)
        self.admission = Admission(registry, self.types)
        self.breaker_counts = BreakerCounts(store, self.admission.breaker_of, clock=clock)
        self.releases = OtherReleases(env)
        self.triggers = PollTriggers(env, self.pools, self.admission)
        self.live = LiveSettings(
            store,
            self.handlers,
            self.admission,
            self.breaker_counts,
            ledger.follow,
            on_switch=self.triggers.switch,
            each_minute=(self.releases.report, self.publish),
        )
        self.settler = Settler(env, self.admission, self.breaker_counts, self.releases, self.triggers)
        self.guard, tags = Guard(), process_tags(config.tag)
        self.shell = Shell(tags, self.guard, clock)
        self.children = Children(env, tags, self.guard)
        self.liveness = Liveness(env, self.guard, watched)
        self.runner = Runner(
            env, self.live, self.settler, self.triggers, self.shell, self.children, self.liveness
        )
        self.leaks = Leaks(env, self.runner)
        self.timeouts = Timeouts(env, self.runner, self.leaks)
        self.claimer = Claimer(
            env, self.triggers, self.admission, self.runner, self.settler, self.releases.reader
        )
        self.ticks = Ticks(store, lambda: self.membership.id, clock=clock)
        self.scheduler = Scheduler(store, wakeup, self.ticks.note, told=True)
        self.reaper = self._make_reaper()
        self.pruner = Pruner(store, self.ticks.note, clock=clock, ledger=ledger)
        self.verifier = Verifier(store, self.handlers, self.runner.coroutines, ring, ledger)
        about = (self.releases.reader, self._info, self._vitals)
        self.heartbeat = Heartbeat(env, self.runner, self.admission, *about, self._saw)

    @property
    def loops(self) -> tuple[Loop, ...]:
        """The threads that repeat themselves, in the order in which they stop; the claimer's stops before."""
        return (
            self.pruner.loop,
            self.scheduler.loop,
            self.live.loop,
            self.reaper.loop,
            self.heartbeat.loop,
            self.settler.loop,
            self.timeouts.loop,
        )

    @property
    def reporting(self) -> tuple[Loop, ...]:
        """Those that only report to the store what was seen here; they stop last, and soon."""
        checks = (self.verifier.loop,) if self.verifier.wanted else ()
        return (*checks, self.ticks.loop, self.ledger.loop)

    def idle(self) -> bool:
        return all(pool.idle for pool in self.pools)

    @property
    def needs_loop(self) -> bool:
        return self.verifier.needs_loop or any(each.kind == "loop" for each in self.handlers.values())

    def _make_reaper(self) -> Reaper:
        return Reaper(
            self.env.store,
            self.env.wakeup,
            Watchman(gone=partial(is_gone, seen_from=self.membership.place)),
            policy=self.live.policy,
            clock=self.env.clock,
            ticked=self.ticks.note,
            ledger=self.ledger,
        )

    def publish(self) -> None:
        """Tell the store which types and schedules this release has, and that it is live."""
        infos = [self._registry.info(each) for each in self.handlers.values()]
        self.env.store.register(infos, self.app)
        self.declarer.tell()

    def _saw(self, look: Look) -> None:
        self.live.notice(look.revision)
        # Whoever looked has promoted what was due.
        self.ticks.note(PROMOTE)
        self.claimer.saw(look)
        self.scheduler.saw(look.next_fire)
        self.reaper.saw(self.membership.id, look, self.membership.pulse)
        if any(worker.drain and worker.id == self.membership.id for worker in look.workers):
            self._asked_to_drain()

    def _vitals(self) -> Vitals:
        return Vitals(
            state="draining" if self.draining else "running",
            busy=sum(pool.busy for pool in self.pools),
            held=sum(pool.held for pool in self.pools),
            done=self.settler.done,
            failed=self.settler.failed,
            late=self.settler.late,
            deaf=self.env.wakeup.deaf,
            resident_bytes=resident(self.membership.place.pid),
            pools=self._pool_infos(),
        )

    def _pool_infos(self) -> dict[str, PoolInfo]:
        infos: dict[str, PoolInfo] = {}
        for pool in self.pools:
            name = pool.name.removeprefix(_NAMED)
            # Somebody may call one of theirs `threads`: then the two are told of together.
            other = infos.get(name, PoolInfo(0))
            infos[name] = PoolInfo(other.slots + pool.slots, other.busy + pool.busy, other.held + pool.held)
        return infos

    def _info(self) -> WorkerInfo:
        return WorkerInfo(
            id=self.membership.id,
            **msgspec.structs.asdict(self.membership.place),
            version=version("windlass"),
            app=self.app,
            types=tuple(self.types),
            slots=sum(pool.slots for pool in self.pools),
            versions=dict(self.types),
            reader=self.releases.reader,
            pools=self._pool_infos(),
            declares=tuple(map(digest_of, self.declarer.schedules)),
        )


def choose_handlers(registry: Registry, config: WorkerConfig) -> dict[str, Handler]:
    """The handlers that this worker serves, by type."""
    chosen = {name: registry.get(name) for name in registry.names(config.types)}
    handlers = {name: handler for name, handler in chosen.items() if handler is not None}
    handlers.pop(SHELL, None)
    if config.shell:
        handlers[SHELL] = shell_handler(sent=config.shell is True)
    if config.types and not handlers:
        allowed = f"patterns that match a registered type ({', '.join(registry.names()) or 'none'})"
        raise must_be("types", ", ".join(config.types), allowed)
    return handlers


def make_pools(handlers: dict[str, Handler], config: WorkerConfig) -> list[Pool]:
    """Those that are named, for their types; else one over everything, or one for each way of running."""
    slots = {
        "all": config.concurrency or 0,
        "threads": config.threads,
        "loop": config.coroutines,
        "processes": config.processes,
    } | {_named(pool): pool.slots for pool in config.pools}
    by_pool: dict[str, dict[str, int]] = {}
    for name, handler in handlers.items():
        by_pool.setdefault(_pool_of(handler, config), {})[name] = handler.version
    memory = {name: each.memory for name, each in handlers.items() if each.memory is not None}
    budget = _budget(memory, config)
    return [
        Pool(name, types, slots[name], budget, {each: memory[each] for each in types if each in memory})
        for name, types in by_pool.items()
    ]


def _pool_of(handler: Handler, config: WorkerConfig) -> str:
    for pool in config.pools:
        if any(fnmatchcase(handler.name, pattern) for pattern in pool.types):
            return _named(pool)
    return "all" if config.concurrency else _POOLS.get(handler.kind, "threads")


def _named(pool: PoolConfig) -> str:
    """A name that none of ours can be."""
    return _NAMED + pool.name


def _budget(memory: Mapping[str, int], config: WorkerConfig) -> MemoryBudget | None:
    """What types with a `memory` share; one that could never fit is refused: its jobs would wait for ever."""
    machine = machine_memory()
    size = config.memory or (int(machine * SHARE_OF_MACHINE) if machine else None)
    if size is None:
        return None
    for name, needed in memory.items():
        if needed > size:
            allowed = (
                f"at most the worker's memory budget of {size_text(size)}; raise it with --memory, "
                "or choose the types that this worker serves with --types"
            )
            raise must_be(f"memory of type {name}", size_text(needed), allowed)
    return MemoryBudget(size)


_POOLS = {"loop": "loop", "process": "processes"}
_NAMED = "pool "
