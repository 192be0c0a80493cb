"""How does this process become a server, or serve beside its work?"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

import click
import msgspec

from windlass.cli.commands import command, option
from windlass.cli.logs import log_to_stderr
from windlass.cli.process import collect_rarely, leave, signals
from windlass.cli.session import at_end, session
from windlass.config import ServerConfig
from windlass.errors import InvalidValue, Refused
from windlass.queue import Queue
from windlass.registry import SHELL, shell_handler

if TYPE_CHECKING:
    from windlass.server.run import Server

log = logging.getLogger("windlass.server")

PORT = ServerConfig().port
# How long the server's own work waits for the store; requests wait for --patience at most.
_STORE_PATIENCE = "10s"


patience_option = option(
    "--patience DURATION",
    "How long a request waits for a store that does not answer, before it is told so (503).  [5s]",
)


@command("""
    windlass serve                                   on http://127.0.0.1:8080, for this machine
    windlass serve --port 9000 --db postgresql://...
    windlass serve --host 0.0.0.0 --tls-cert cert.pem --tls-key key.pem
    windlass serve --host 0.0.0.0 --trusted-proxy 10.0.0.5      a proxy there speaks HTTPS
""")
@option("--host HOST", "The address to listen at.  [127.0.0.1]")
@option("--port PORT", f"0: any that is free.  [{PORT}]", type=int)
@option("--tls-cert FILE", "Serve HTTPS, with this certificate.")
@option("--tls-key FILE", "The certificate's key, if it is in another file.")
@option("--shell", "Take shell commands, from callers without keys and from keys with --type shell.")
@patience_option
@option("--insecure", "Ask nobody for an API key, wherever they come from.")
@option(
    "--trusted-proxy ADDRESS",
    "Believe the X-Forwarded-For of this proxy or network; may be repeated.",
    name="trusted_proxies",
    multiple=True,
)
@option(
    "--allowed-host NAME",
    "Without keys: also answer requests for this host name; may be repeated.",
    name="allowed_hosts",
    multiple=True,
)
@option("--log-json", "Log in JSON, for machines.")
def serve(*, log_json: bool, **given: Any) -> None:
    """Answer requests over HTTP: producers, operators and workers in any language.

    On the loopback no key is needed until there is one; any other address refuses to start without keys.
    /docs tells what can be asked. Ctrl-C or SIGTERM: requests that run may finish for 25 seconds. Each option
    can also be set as WINDLASS_SERVER_... or in the section [server] of windlass.toml.
    """
    server_module = _server()
    signals.obey()
    here = session()
    here.flags |= {f"server.{name}": value or None for name, value in given.items() if name != "port"}
    here.flags["server.port"] = given["port"]
    config = here.config.server()
    server_module.open_more_files()
    log_to_stderr(as_json=log_json or here.json)
    queue = here.queue if here.config.app else Queue(here.config.database_url, patience=_STORE_PATIENCE)
    at_end(queue.close)
    if config.shell and queue.registry.get(SHELL) is None:
        queue.registry.add(shell_handler())
    server = server_module.Server(queue, config)
    try:
        server.listen()
    except InvalidValue as error:
        raise here.config.placed("server", error) from None
    signals.serve(server)
    here.works = True

    def started(url: str) -> None:
        collect_rarely()
        click.echo(f"serves {here.place} at {url}; {url}/docs", err=True)

    server.run(started)
    leave(here)


COMMANDS = (serve,)


def serve_beside(queue: Queue, config: ServerConfig, *, fixed: bool) -> tuple[Server, str]:
    """A server for this machine and where it listens: at the port, or else at any if that is not `fixed`."""
    ours = msgspec.structs.replace(config, host="127.0.0.1", insecure=False, upkeep=False)
    server: Server = _server().Server(queue, ours)
    try:
        return server, server.listen()
    except InvalidValue:
        if fixed:
            raise
    return serve_beside(queue, msgspec.structs.replace(config, port=0), fixed=True)


def run_beside(server: Server, until: threading.Event) -> Callable[[], None]:
    """Answer requests on a thread of a process that has other work; gives what stops it, and waits."""

    def run() -> None:
        try:
            server.run()
        except Exception:  # wall: whatever ends the server, the jobs go on
            log.exception("server.ended")

    def stop_then() -> None:
        until.wait()
        server.request_stop()

    # What stops a process waits for them, but not for ever.
    thread = threading.Thread(target=run, name="windlass-server", daemon=True)
    thread.start()
    threading.Thread(target=stop_then, name="windlass-server-end", daemon=True).start()

    def stop() -> None:
        server.request_stop()
        thread.join()

    return stop


def _server() -> ModuleType:
    """The server is an extra, imported only by who needs it."""
    try:
        from windlass.server import run  # noqa: PLC0415 - see above
    except ImportError as error:
        if error.name is None or error.name.partition(".")[0] not in EXTRA:
            raise
        raise Refused(
            "the server needs packages that are not installed: pip install 'windlass[server]'"
        ) from None
    return run


EXTRA = ("starlette", "uvicorn", "httptools")
