"""Where does a real PgBouncer come from? Debian's package, started between one test and a server."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg

from tests.servers.ports import free_port
from tests.servers.postgres import Cluster, account, missing
from tests.waiting import PATIENCE

INSTALL = "apt-get install pgbouncer"


def program() -> Path | None:
    """PgBouncer's program, if it is installed; on Debian it is not on everybody's PATH."""
    found = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
    return None if found is None else Path(found)


@contextlib.contextmanager
def before(server: Cluster, url: str, *, lenient: bool = False) -> Iterator[str]:
    """The URL of a server's database by way of a pooler that lends its sessions for a transaction each.

    A lenient one takes settings of the session and forgets them; another refuses them.
    """
    found = program()
    if found is None:
        missing(f"PgBouncer is not here: {INSTALL}")
    with tempfile.TemporaryDirectory(prefix="wl-pb-", dir="/tmp") as name:
        folder, port = Path(name), free_port()
        here = account(folder)
        config = folder / "pgbouncer.ini"
        more = "ignore_startup_parameters = options\n" if lenient else ""
        config.write_text(_CONFIG.format(server=server.folder, port=port) + more)
        with (folder / "log").open("ab") as log:
            process = subprocess.Popen([found, config], stdout=log, stderr=log, **here)
        try:
            through = url.partition("?")[0].replace("@/", f"@127.0.0.1:{port}/")
            _wait_until_ready(process, through, folder / "log")
            yield through
        finally:
            process.kill()
            process.wait()


def _wait_until_ready(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    pause = threading.Event()
    for _ in range(int(PATIENCE / 0.05)):
        if process.poll() is not None:
            break
        with contextlib.suppress(psycopg.OperationalError):
            psycopg.connect(url, connect_timeout=5).close()
            return
        pause.wait(0.05)
    raise RuntimeError(f"PgBouncer does not start:\n{log.read_text()}")


_CONFIG = """
[databases]
* = host={server} user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 4
"""
