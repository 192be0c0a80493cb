"""Which parts does a server have?"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import msgspec

from windlass.clock import SystemClock
from windlass.errors import InvalidValue, Refused, StoreError, StoreUnavailable
from windlass.ops import Ops
from windlass.ops.counting import Counting
from windlass.queue import Queue
from windlass.server.alarm import Alarm
from windlass.server.door import Door
from windlass.server.flow import Flow
from windlass.server.hints import happens
from windlass.server.identity import LOCAL, Identity
from windlass.server.intake import Intake
from windlass.server.keyring import Keyring
from windlass.server.rates import Rates
from windlass.server.remote import Remote
from windlass.server.stream import Stream
from windlass.server.upkeep import Upkeep
from windlass.server.waiting import Endings
from windlass.store.protocol import Counts, Store

log = logging.getLogger("windlass.server")

T = TypeVar("T")
_THREADS = 16
_LONG_THREADS = 4
# A hint wakes every worker that waits: so many look for jobs at once, and leave threads to the others.
_LOOKING = 4
_LOOK_SECONDS = 2.0
_MOST_PORTS = 65_535


class ServerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How one server serves. Refuses nonsense when it is made."""

    host: str = "127.0.0.1"
    port: int = 8080
    # Whether jobs of the type `shell` are taken.
    shell: bool = False
    # Nobody needs a key, wherever they come from.
    insecure: bool = False
    tls_cert: str | None = None
    tls_key: str | None = None
    # Whether it looks after the fleet; a worker in the same process does so already.
    upkeep: bool = True

    def __post_init__(self) -> None:
        if not 0 <= self.port <= _MOST_PORTS:
            raise InvalidValue("port", self.port, f"between 0 and {_MOST_PORTS}")
        if self.tls_key is not None and self.tls_cert is None:
            raise InvalidValue("tls_key", self.tls_key, "given together with tls_cert")

    @property
    def loopback(self) -> bool:
        """Whether only programs of this machine can reach it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


class Parts:
    """Everything that answers requests, wired once."""

    def __init__(self, queue: Queue, config: ServerConfig) -> None:
        self.queue = queue
        self.config = config
        self.stopping = asyncio.Event()
        self.intake = Intake(queue)
        self.rates = Rates()
        self.keyring = Keyring(
            lambda: queue.store, always=not config.loopback and not config.insecure, never=config.insecure
        )
        self.door = Door(
            self.keyring,
            partial(self.run, self.keyring.look),
            loopback=config.loopback and not config.insecure,
        )
        self.endings = Endings(self)
        self.stream = Stream(self)
        self._counting = Counting(self._count)
        self.remote = Remote()
        self.contract: dict[str, Any] = {}
        self.looking = asyncio.Semaphore(_LOOKING)
        # What the requests under way have sent so far.
        self.body_bytes = 0
        self._flow: Flow | None = None
        self._upkeep: Upkeep | None = None
        self._alarm: Alarm | None = None
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="windlass-server")
        # For what may take hours, such as many jobs at a slow pace: it must not keep the others waiting.
        self._long = ThreadPoolExecutor(_LONG_THREADS, thread_name_prefix="windlass-long")
        # For /health, which must not wait behind requests.
        self._well = ThreadPoolExecutor(1, thread_name_prefix="windlass-health")

    @property
    def store(self) -> Store:
        """The store behind it."""
        return self.queue.store

    @property
    def flow(self) -> Flow:
        """What holds remote workers back."""
        if self._flow is None:
            raise StoreUnavailable("the server is not open yet")
        return self._flow

    def _count(self) -> Counts:
        return self.store.counts()

    def ops(self, who: Identity = LOCAL, request_id: str = "") -> Ops:
        """The operator's verbs, done in somebody's name, for a request that may be sent again."""
        return Ops(
            self.store,
            wakeup=self.queue.wakeup,
            by=who.told,
            counts=self._counting,
            request_id=request_id,
        )

    def open(self) -> None:
        """Open the store, and refuse to stand open to other machines without keys. Waits for the store."""
        self.queue.publish()
        self.keyring.look()
        if self.keyring.needed and not self.store.api_keys():
            raise Refused(
                f"{self.config.host} can be reached by other machines, and there is no API key: make one by "
                "`windlass keys create NAME --role admin`, or say --insecure"
            )
        self._flow = Flow(self.store, SystemClock(), told=self.config.upkeep)
        self._flow.start()
        self._alarm = Alarm(self.store)
        self._alarm.loop.start()
        if self.config.upkeep:
            self._upkeep = Upkeep(self.store, self.queue.wakeup, self._flow)
            self._upkeep.start()

    async def run(self, verb: Callable[..., T], /, *args: Any, **options: Any) -> T:
        """Call something that waits for the store, on a thread."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, partial(verb, *args, **options))

    async def run_long(self, verb: Callable[..., T], /, *args: Any, **options: Any) -> T:
        """Call something that may take as long as it likes, a few at a time."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._long, partial(verb, *args, **options))

    async def stopped(self) -> None:
        """Come back when the server is told to stop."""
        await self.stopping.wait()

    async def ping(self) -> None:
        """Whether the store answers."""
        await asyncio.get_running_loop().run_in_executor(self._well, self.store.settings)

    async def look_on(self) -> None:
        """Keep what is known of keys fresh, until the server stops."""
        while not await happens(self.stopping, _LOOK_SECONDS):
            try:
                await self.run(self.keyring.look)
            except StoreError as error:
                log.warning("server.look_failed", extra={"error": str(error)})

    async def close(self) -> None:
        """Finish what is being written, and let go."""
        self.stopping.set()
        await asyncio.to_thread(self.intake.close)
        for part in (self._alarm, self._upkeep, self._flow):
            if part is not None:
                await asyncio.to_thread(part.stop)
        for threads in (self._threads, self._long, self._well):
            threads.shutdown(wait=False, cancel_futures=True)
