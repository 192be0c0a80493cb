"""The parts of a server, and the threads on which they wait for the store."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from windlass.clock import SystemClock
from windlass.config import ServerConfig
from windlass.errors import Refused, StoreError
from windlass.ops import Ops
from windlass.ops.bulk import Carrier
from windlass.ops.overview import Counting
from windlass.queue import Queue
from windlass.queue.jobs import happens
from windlass.server.alarm import Alarm
from windlass.server.authentication import Authentication, Proxies
from windlass.server.connection import Connections
from windlass.server.group_commit import RequestGroups
from windlass.server.health import Availability
from windlass.server.identity import LOCAL, Identity, Keyring
from windlass.server.limits import Addresses, Denials, Rates, RequestLimits, Turns, bounds
from windlass.server.remote import Flow, Remote, Upkeep
from windlass.server.waiting import Endings, Stream, WaitingWorkers
from windlass.store.fleet import Vitals
from windlass.store.group_commit import Caller, on_behalf_of
from windlass.store.store import Store

log = logging.getLogger("windlass.server")

T = TypeVar("T")
# Fewer than the connections of a store: what all callers read together leaves some to those who enqueue.
_THREADS = 8
_THREADS_PER_KEY = 4
_LONG_PER_KEY = 2
# One chunk of an operation may take so long; its lease ends by itself otherwise.
_CARRIER_SECONDS = 2.0
_LOOK_SECONDS = 2.0


class Parts:
    """Everything that answers requests, wired once."""

    # Made by `open`: what holds remote workers back, and what carries operations.
    flow: Flow
    carrier: Carrier

    def __init__(self, queue: Queue, config: ServerConfig) -> None:
        self.queue = queue
        self.config = config
        self.stopping = asyncio.Event()
        self.availability = Availability(self._probe, config.patience, self._refuse_all)
        self.commits = RequestGroups(queue, patience=config.patience, doubt=self.availability.doubt)
        self.rates = Rates()
        self.proxies = Proxies(config.trusted_proxies)
        self.denials = Denials(lambda: queue.store)
        self.log_ins = Addresses("log-ins that failed", 10, 6.0)
        self.strangers = Addresses("requests without a key", 500, 0.01)
        self.keyring = Keyring(
            lambda: queue.store, always=not config.loopback and not config.insecure, never=config.insecure
        )
        self.authentication = Authentication(
            self.keyring,
            partial(self.run, self.keyring.look),
            self.proxies,
            loopback=config.loopback and not config.insecure,
            hosts=config.allowed_hosts,
        )
        self.endings = Endings(self)
        self.stream = Stream(self)
        self._counting = Counting(lambda: self.store.counts())  # noqa: PLW0108 - opened later
        self.remote = Remote()
        self.requests = RequestLimits(bounds(config))
        self.connections = Connections()
        self.waiting_workers = WaitingWorkers(self)
        self.turns = Turns(_THREADS, _THREADS_PER_KEY)
        self.long_turns = Turns(_THREADS, _LONG_PER_KEY)
        # What the requests under way have sent so far.
        self.body_bytes = 0
        # What ends the parts that were started, the first of them last.
        self._stops: list[Callable[[], object]] = []
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="windlass-server")
        # For /health and the look whether the store is back, which must not wait behind requests.
        self._well = ThreadPoolExecutor(2, thread_name_prefix="windlass-health")

    @property
    def store(self) -> Store:
        return self.queue.store

    def _refuse_all(self) -> None:
        self.commits.refuse_all()

    def ops(self, who: Identity = LOCAL, request_id: str = "") -> Ops:
        """The operator's actions in a caller's name, for a request that may be sent again."""
        return Ops(
            self.store,
            wakeup=self.queue.wakeup,
            by=who.recorded,
            counts=self._counting,
            request_id=request_id,
            sent=True,
            may=who.may,
            tenant=who.tenant,
        )

    def open(self) -> None:
        """Open the store, and refuse to serve other machines without keys. Waits for the store."""
        self.queue.publish()
        self.keyring.look()
        if self.keyring.needed and not self.store.api_keys():
            raise Refused(
                f"{self.config.host} can be reached by other machines, and there is no API key: make one by "
                "`windlass keys create NAME --role admin`, or say --insecure"
            )
        for warning in self.config.warnings:
            log.warning("server.exposed", extra={"note": warning})
        self.flow = Flow(self.store, SystemClock(), announced=self.config.upkeep)
        self._stops.append(self.flow.stop)
        self.flow.start()
        if self.config.upkeep:
            upkeep = Upkeep(self.store, self.queue.wakeup, self.flow)
            self._stops.append(upkeep.stop)
            upkeep.start()
        alarm = Alarm(self.store)
        self._stops.append(alarm.stop)
        alarm.loop.start()
        self.carrier = Carrier(self.store, self.queue.wakeup)
        self._stops.append(partial(self.carrier.stop, _CARRIER_SECONDS))
        self.carrier.loop.start()

    async def run(self, verb: Callable[..., T], /, *args: Any, **options: Any) -> T:
        """Call something that waits for the store, on a thread."""
        return await self.run_for(lambda: False, verb, *args, **options)

    async def run_for(
        self, gone: Callable[[], bool], verb: Callable[..., T], /, *args: Any, **options: Any
    ) -> T:
        """The same for a caller who may hang up, until the store is away: what has not begun never does."""
        given_up = False
        caller = Caller(lambda: not given_up and not gone(), self.config.patience)

        def call() -> T:
            with on_behalf_of(caller):
                return verb(*args, **options)

        loop = asyncio.get_running_loop()
        try:
            return await self.availability.wait_for(loop.run_in_executor(self._threads, call))
        except StoreError:
            self.availability.doubt()
            raise
        finally:
            given_up = True

    async def ping(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._well, self.store.settings)

    async def _probe(self) -> None:
        """Ask the store's writer. A server has no row in the fleet, so nothing is changed."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._well, self.store.beat, "", Vitals())

    async def look_on(self) -> None:
        """Keep what is known of keys fresh, and report denied requests, until the server stops."""
        while not await happens(self.stopping, _LOOK_SECONDS):
            self.connections.sweep(asyncio.get_running_loop().time())
            try:
                await self.run(self.keyring.look)
                await self.run(self.denials.flush)
            except StoreError as error:
                log.warning("server.look_failed", extra={"error": str(error)})

    async def close(self) -> None:
        self.stopping.set()
        self.availability.close()
        await asyncio.to_thread(self.commits.close)
        with contextlib.suppress(StoreError):
            await asyncio.to_thread(partial(self.denials.flush, last=True))
        for stop in reversed(self._stops):
            await asyncio.to_thread(stop)
        for threads in (self._threads, self._well):
            threads.shutdown(wait=False, cancel_futures=True)
