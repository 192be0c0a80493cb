"""How does this process become a server, or serve beside its work?"""

from __future__ import annotations

import logging
import threading
from types import ModuleType
from typing import TYPE_CHECKING

import click

from windlass.cli.commands import Command
from windlass.cli.garbage import collect_rarely
from windlass.cli.logs import log_to_stderr
from windlass.cli.process import leave, obey, obey_signals
from windlass.cli.session import session
from windlass.errors import InvalidValue, Refused
from windlass.queue import Queue

if TYPE_CHECKING:
    from windlass.server.run import Server

log = logging.getLogger("windlass.server")

PORT = 8080
# A caller that waits longer than this for an answer has given up.
_PATIENCE = "10s"


@click.command(
    cls=Command,
    examples="""
        windlass serve                                   on http://127.0.0.1:8080, for this machine
        windlass serve --port 9000 --db postgresql://...
        windlass serve --host 0.0.0.0 --tls-cert cert.pem --tls-key key.pem
    """,
)
@click.option(
    "--host", default="127.0.0.1", show_default=True, metavar="HOST", help="The address to listen at."
)
@click.option(
    "--port", type=int, default=PORT, show_default=True, metavar="PORT", help="0: any that is free."
)
@click.option("--tls-cert", metavar="FILE", help="Serve HTTPS, with this certificate.")
@click.option("--tls-key", metavar="FILE", help="The certificate's key, if it is in another file.")
@click.option(
    "--shell",
    is_flag=True,
    help="Take shell commands, from callers without keys and from keys with --type shell.",
)
@click.option("--insecure", is_flag=True, help="Ask nobody for an API key, wherever they come from.")
@click.option("--log-json", is_flag=True, help="Log in JSON, for machines.")
def serve(
    host: str,
    port: int,
    tls_cert: str | None,
    tls_key: str | None,
    shell: bool,
    insecure: bool,
    log_json: bool,
) -> None:
    """Answer requests over HTTP: producers, operators and workers in any language.

    On the loopback no key is needed until there is one; any other address refuses to start without keys.
    /docs tells what can be asked. Ctrl-C or SIGTERM: requests that run may finish for 25 seconds.
    """
    server_module, parts = _server()
    obey_signals()
    here = session()
    config = parts.ServerConfig(
        host=host, port=port, tls_cert=tls_cert, tls_key=tls_key, shell=shell, insecure=insecure
    )
    log_to_stderr(as_json=log_json or here.json)
    queue = here.queue if here.config.app else Queue(here.config.database_url, patience=_PATIENCE)
    click.get_current_context().find_root().call_on_close(queue.close)
    server = server_module.Server(queue, config)
    obey(server)
    here.works = True

    def started(url: str) -> None:
        collect_rarely()
        click.echo(f"serves {here.place} at {url}; {url}/docs", err=True)

    server.run(started)
    leave(here)


COMMANDS = (serve,)


class Beside:
    """A server on a thread of a process that has other work; the loopback's callers only."""

    def __init__(self, server: Server) -> None:
        self._server = server
        # What stops a process waits for us, but not for ever.
        self._thread = threading.Thread(target=self._run, name="windlass-server", daemon=True)

    def start(self, until: threading.Event) -> None:
        """Answer requests until that happens."""
        self._thread.start()
        threading.Thread(target=self._stop_at, args=(until,), name="windlass-server-end", daemon=True).start()

    def stop(self) -> None:
        """Come to the end, which requests that run may hold up for a while."""
        self._server.request_stop()
        if self._thread.is_alive():
            self._thread.join()

    def _stop_at(self, until: threading.Event) -> None:
        until.wait()
        self._server.request_stop()

    def _run(self) -> None:
        try:
            self._server.run()
        except Exception:  # wall: whatever ends the server, the jobs go on
            log.exception("server.ended")


def serve_beside(queue: Queue, port: int | None) -> tuple[Beside, str]:
    """A server for this machine and where it listens: at `port`, or else at the usual one if that is free."""
    server_module, parts = _server()

    def listening(at: int) -> tuple[Beside, str]:
        server = server_module.Server(queue, parts.ServerConfig(port=at, upkeep=False))
        url = server.listen()
        return Beside(server), url

    if port is not None:
        return listening(port)
    try:
        return listening(PORT)
    except InvalidValue:
        return listening(0)


def _server() -> tuple[ModuleType, ModuleType]:
    """The server is an extra, imported only by who needs it."""
    try:
        from windlass.server import parts, run  # noqa: PLC0415 - see above
    except ImportError as error:
        if error.name is None or error.name.partition(".")[0] not in _EXTRA:
            raise
        raise Refused(
            "the server needs packages that are not installed: pip install 'windlass[server]'"
        ) from None
    return run, parts


_EXTRA = ("starlette", "uvicorn", "httptools")
