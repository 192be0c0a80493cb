"""Which parts does a worker have, and who knows whom?"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from fnmatch import fnmatchcase
from functools import cached_property, partial
from importlib.metadata import version

from windlass.clock import Clock
from windlass.config import PoolConfig, WorkerConfig, app_version, ring
from windlass.errors import StoreError, must_be
from windlass.loop import Loop
from windlass.observe.ledger import Ledger
from windlass.registry import SHELL, Handler, Registry, shell_handler
from windlass.size import told_size
from windlass.store.declarations import digest_of
from windlass.store.fleet import Look, PoolInfo, Vitals, WorkerInfo
from windlass.store.store import Store
from windlass.upkeep import place
from windlass.upkeep.pruner import Pruner
from windlass.upkeep.reaper import Reaper
from windlass.upkeep.scheduler import Declarer, Scheduler
from windlass.upkeep.ticks import PROMOTE, Ticks
from windlass.upkeep.watchman import Watchman
from windlass.wakeup import Wakeup
from windlass.worker.budget import SHARE_OF_MACHINE, Budget, machine_memory
from windlass.worker.caller import Caller
from windlass.worker.children.children import Children
from windlass.worker.children.tree import Marks, resident
from windlass.worker.claimer import Claimer
from windlass.worker.elsewhere import Elsewhere
from windlass.worker.gates import Gates
from windlass.worker.guard import Guard
from windlass.worker.heartbeat import LOOK_EVERY, Heartbeat
from windlass.worker.keeping import Keeping
from windlass.worker.pool import Pool
from windlass.worker.presence import EMBEDDED, Presence, Watched
from windlass.worker.run import Runs
from windlass.worker.runner import Runner
from windlass.worker.settler import Settler
from windlass.worker.shell import Shell
from windlass.worker.standing import Standing
from windlass.worker.tally import Tally
from windlass.worker.terms import Terms
from windlass.worker.verifier import Verifier
from windlass.worker.warden import Warden
from windlass.worker.wear import Wear


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
        self._store = store
        self._wakeup = wakeup
        self._config = config
        self._clock = clock
        self.draining = False
        self.handlers = choose_handlers(registry, config)
        self._registry = registry
        self.types = {name: handler.version for name, handler in self.handlers.items()}
        self.pools = make_pools(self.handlers, config)
        self.app = app_version() or registry.app_version
        self.runs = Runs()
        self.standing = Standing(place.here(), clock)
        self.gates = Gates(registry, self.types)
        self.tally = Tally(store, self.gates.breaker_of, clock=clock)
        self.terms = Terms(store, self.handlers, self.gates, self.tally)
        self.ledger = Ledger(store, self.app)
        self.guard = Guard()
        marks = Marks(config.mark)
        self.shell = Shell(marks, self.guard, clock)
        self.children = Children(self.handlers, config, marks, self.guard, clock)
        self.presence = Presence(store, self.guard, config.hang_limit, watched, clock=clock)
        self.elsewhere = Elsewhere(store, self.handlers, self.terms.policy, ring, clock=clock)
        self.settler = self._make_settler()
        self.runner = self._make_runner(chance)
        self.caller = Caller(self.runner, freed=self._freed, hangs=self.gates.hangs, clock=clock)
        self.caller.coroutines.on_stall = self._loop_stalled
        self.wear = Wear(self.caller, most_held=config.most_held, clock=clock)
        self.warden = self._make_warden()
        self.claimer = self._make_claimer()
        self.terms.on_switch = self.claimer.switched
        self.terms.on_minute = self._each_minute
        self.terms.on_settings = self.ledger.follow
        self.settler.on_permit = self.claimer.permit
        self.heartbeat = self._make_heartbeat()
        self.ticks = Ticks(store, lambda: self.standing.id, clock=clock)
        self.reaper = self._make_reaper()
        self.pruner = Pruner(store, self.ticks.note, clock=clock, ledger=self.ledger)
        self.scheduler = Scheduler(store, wakeup, self.ticks.note, told=True)
        self.verifier = Verifier(store, self.handlers, self.caller.coroutines, ring, self.ledger)

    @property
    def loops(self) -> tuple[Loop, ...]:
        """The threads that repeat themselves, in the order in which they stop; the claimer's stops before."""
        return (
            self.pruner.loop,
            self.scheduler.loop,
            self.terms.loop,
            self.reaper.loop,
            self.heartbeat.loop,
            self.settler.loop,
            self.warden.loop,
        )

    @property
    def telling(self) -> tuple[Loop, ...]:
        """Those that only tell the store what was seen here: nobody waits long for them; they stop last."""
        checks = (self.verifier.loop,) if self.verifier.wanted else ()
        return (*checks, self.ticks.loop, self.ledger.loop)

    @cached_property
    def declarer(self) -> Declarer:
        """Tells the store of the schedules that the code declares."""
        return Declarer(self._store, self._registry, self.handlers)

    def publish(self) -> None:
        """Tell the store which types and schedules this release has, and that it is live."""
        self._store.register([self._registry.info(handler) for handler in self.handlers.values()], self.app)
        self.declarer.tell()

    def _each_minute(self) -> None:
        self.elsewhere.tell()
        self.publish()

    def idle(self) -> bool:
        """Whether nothing runs and nothing waits for a slot."""
        return all(pool.idle for pool in self.pools)

    @property
    def needs_loop(self) -> bool:
        """Whether any handler is `async def`, or any check of one."""
        return self.verifier.needs_loop or any(each.kind == "loop" for each in self.handlers.values())

    def _make_settler(self) -> Settler:
        settler = Settler(
            self._store,
            self._wakeup,
            self.runs,
            working=lambda: not self.idle(),
            limited=self.gates.limited,
            shared=self.gates.shared,
            settled=self.tally.note,
            ledger=self.ledger,
        )
        settler.reconsider = self.elsewhere.reconsider
        settler.left_behind = self._left_behind
        settler.on_left = self.elsewhere.note
        return settler

    def _make_runner(self, chance: Callable[[], float]) -> Runner:
        return Runner(
            self.settler,
            self.runs,
            self.standing,
            self.terms,
            self.shell,
            self.children,
            self.presence,
            clock=self._clock,
            chance=chance,
            app=self.app,
        )

    def _make_warden(self) -> Warden:
        warden = Warden(self.runs, self.runner, self.standing, check=self._check, clock=self._clock)
        self.runner.on_begin = warden.watch
        self.runner.break_off = warden.break_off
        return warden

    def _make_claimer(self) -> Claimer:
        return Claimer(
            self._store,
            self.pools,
            self.handlers,
            runs=self.runs,
            runner=self.runner,
            settler=self.settler,
            standing=self.standing,
            gates=self.gates,
            caller=self.caller,
            tell=self._wakeup.notify,
            ledger=self.ledger,
            keeping=Keeping(self._store, self.pools, clock=self._clock),
            reader=self.elsewhere.reader,
            lease=self._config.lease,
            poll=self._config.poll,
            clock=self._clock,
        )

    def _make_heartbeat(self) -> Heartbeat:
        return Heartbeat(
            self._store,
            self.standing,
            info=self._info,
            vitals=self._vitals,
            types=lambda: self.gates.open(self.types),
            reader=self.elsewhere.reader,
            runs=self.runs,
            runner=self.runner,
            stop=self.warden.stop,
            seen=self._saw,
            ledger=self.ledger,
            lease=self._config.lease,
            every=min(LOOK_EVERY, self._config.poll),
            clock=self._clock,
        )

    def _make_reaper(self) -> Reaper:
        watchman = Watchman(gone=partial(place.is_gone, seen_from=self.standing.place))
        return Reaper(
            self._store,
            self._wakeup,
            watchman,
            policy=self.terms.policy,
            clock=self._clock,
            ticked=self.ticks.note,
            ledger=self.ledger,
        )

    def _freed(self, pool: Pool) -> None:
        self.claimer.freed(pool)

    def _saw(self, look: Look) -> None:
        self.terms.notice(look.revision)
        # Whoever looked has promoted what was due.
        self.ticks.note(PROMOTE)
        self.claimer.saw(look)
        self.scheduler.saw(look.next_fire)
        self.reaper.saw(self.standing.id, look, self.standing.pulse)
        if any(worker.drain and worker.id == self.standing.id for worker in look.workers):
            self._asked_to_drain()

    def _left_behind(self, worker: str) -> bool:
        with contextlib.suppress(StoreError):
            return self.standing.left_behind(worker, self._store.generation)
        return False

    def _check(self) -> None:
        """On the warden's thread, each second and whether the store answers or not."""
        self.caller.coroutines.check()
        self.wear.look()

    def _loop_stalled(self) -> None:
        """Claim nothing for a loop that does not answer."""
        stalled = self.caller.coroutines.stalled
        on_loop = (name for name, handler in self.handlers.items() if handler.kind == "loop")
        self.gates.blocked = frozenset(on_loop if stalled else ())
        if not stalled:
            self.claimer.hint()

    def _vitals(self) -> Vitals:
        return Vitals(
            state="draining" if self.draining else "running",
            busy=sum(pool.busy for pool in self.pools),
            held=sum(pool.held for pool in self.pools),
            done=self.settler.done,
            failed=self.settler.failed,
            late=self.settler.late,
            deaf=self._wakeup.deaf,
            resident_bytes=resident(self.standing.place.pid),
            pools=self._pool_infos(),
        )

    def _pool_infos(self) -> dict[str, PoolInfo]:
        """What is told of pools, by the names that people know."""
        infos: dict[str, PoolInfo] = {}
        for pool in self.pools:
            name = pool.name.removeprefix(_NAMED)
            # Somebody may call one of theirs `threads`: then the two are told of together.
            other = infos.get(name, PoolInfo(0))
            infos[name] = PoolInfo(other.slots + pool.slots, other.busy + pool.busy, other.held + pool.held)
        return infos

    def _info(self, worker: str) -> WorkerInfo:
        here = self.standing.place
        return WorkerInfo(
            id=worker,
            host=here.host,
            boot=here.boot,
            pid_space=here.pid_space,
            pid=here.pid,
            pid_started=here.pid_started,
            version=version("windlass"),
            app=self.app,
            types=tuple(self.types),
            slots=sum(pool.slots for pool in self.pools),
            versions=dict(self.types),
            reader=self.elsewhere.reader,
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
    budget = _budget(handlers, config)
    return [
        Pool(name, types, slots[name], budget=budget, memory=_memory(handlers, types))
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


def _budget(handlers: dict[str, Handler], config: WorkerConfig) -> Budget | None:
    """What types with a `memory` share; one that could never fit is refused: its jobs would wait for ever."""
    machine = machine_memory()
    size = config.memory or (int(machine * SHARE_OF_MACHINE) if machine else None)
    if size is None:
        return None
    for handler in handlers.values():
        if handler.memory is not None and handler.memory > size:
            allowed = (
                f"at most the worker's memory budget of {told_size(size)}; raise it with --memory, "
                "or choose the types that this worker serves with --types"
            )
            raise must_be(f"memory of type {handler.name}", told_size(handler.memory), allowed)
    return Budget(size)


def _memory(handlers: dict[str, Handler], types: dict[str, int]) -> dict[str, int]:
    return {name: memory for name in types if (memory := handlers[name].memory) is not None}


_POOLS = {"loop": "loop", "process": "processes"}
_NAMED = "pool "
