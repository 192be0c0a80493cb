"""Run a server, and stop it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import sys
from collections.abc import Callable, Generator

import uvicorn

from windlass.config import ServerConfig
from windlass.queue import Queue
from windlass.server.app import App
from windlass.server.connection import Connection, open_more_files
from windlass.server.listener import BACKLOG, bound, shown_address
from windlass.server.parts import Parts

__all__ = ["Server", "open_more_files"]
log = logging.getLogger("windlass.server")

# How long requests that run may take to finish.
_GRACE_SECONDS = 25
# How long a connection may stay open on which nothing comes.
_IDLE_SECONDS = 30
# A thread that makes a long list gives way to the next request after this, instead of Python's 5 ms.
_SWITCH_SECONDS = 0.0001


class Server:
    """One server process. When it is asked to stop, requests that run finish and new ones are refused."""

    def __init__(self, queue: Queue, config: ServerConfig) -> None:
        self._queue = queue
        self._config = config
        self._listener: socket.socket | None = None
        self._uvicorn: _Uvicorn | None = None
        self._asked = False
        self.begun = False

    def listen(self) -> str:
        """Take the address, and say which it is; callers that connect wait until `run`."""
        if self._listener is None:
            self._listener = bound(self._config)
        return shown_address(self._config, self._listener)

    def run(self, started: Callable[[str], None] = lambda _: None) -> None:
        """Serve until `request_stop`; `started` gets the address."""
        logging.getLogger("uvicorn").setLevel(logging.CRITICAL)
        listener = self._listener or bound(self._config)
        sys.setswitchinterval(_SWITCH_SECONDS)
        with contextlib.closing(listener), asyncio.Runner(loop_factory=_loop) as runner:
            runner.run(self._serve(listener, started))

    def request_stop(self) -> None:
        """Stop soon; may be called on any thread, and by a signal."""
        self._asked = True
        if self._uvicorn is not None:
            self._uvicorn.should_exit = True

    def abandon(self) -> None:
        """Nothing that must be undone: what is not committed is not answered either."""

    async def _serve(self, listener: socket.socket, started: Callable[[str], None]) -> None:
        parts = Parts(self._queue, self._config)
        try:
            await asyncio.to_thread(parts.open)
            config = uvicorn.Config(
                App(parts),
                http=Connection,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                backlog=BACKLOG,
                timeout_keep_alive=_IDLE_SECONDS,
                timeout_graceful_shutdown=_GRACE_SECONDS,
                ssl_certfile=self._config.tls_cert,
                ssl_keyfile=self._config.tls_key,
            )
            self._uvicorn = _Uvicorn(config, parts)
            # Asked while the store was waited for.
            self._uvicorn.should_exit |= self._asked
            self.begun = True
            looking = asyncio.create_task(parts.look_on())
            started(shown_address(self._config, listener))
            await self._uvicorn.serve(sockets=[listener])
            parts.stopping.set()
            await looking
        finally:
            await parts.close()


class _Uvicorn(uvicorn.Server):
    """Signals are the command line's; waiting requests end before the connections are waited for."""

    def __init__(self, config: uvicorn.Config, parts: Parts) -> None:
        super().__init__(config)
        self._parts = parts

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._parts.stopping.set()
        await super().shutdown(sockets)


def _loop() -> asyncio.AbstractEventLoop:
    """The fast loop where there is one: it has no wheel for Windows."""
    try:
        import uvloop  # noqa: PLC0415 - see above
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
