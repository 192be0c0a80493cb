"""Does a server that is asked to stop answer what it has begun?"""

from __future__ import annotations

import contextlib
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.server.conftest import shop
from tests.server.messages import one_message
from tests.server.process import ServerProcess
from tests.server.test_hostile import a_post
from tests.waiting import PATIENCE, until
from windlass.store.jobs import Filter

LIVE = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"


def test_a_post_that_has_begun_is_answered_and_a_new_connection_is_refused(
    store_url: str, tmp_path: Path
) -> None:
    post = a_post(b'{"type": "add", "payload": {"a": 1}}')
    with shop(store_url) as queue, ThreadPoolExecutor(1) as threads:
        queue.publish()
        server = ServerProcess(store_url, tmp_path)
        try:
            until(lambda: listens(server), "it serves")
            with connect(server) as slow, connect(server) as other:
                slow.sendall(post[:-10])
                # What came before is read before the second of these is answered.
                for _ in range(2):
                    other.sendall(LIVE)
                    assert one_message(other).startswith(b"HTTP/1.1 200 ")
                stopped = threads.submit(server.stop)
                until(lambda: not listens(server), "nobody new is let in")
                slow.sendall(post[-10:])
                assert one_message(slow).startswith(b"HTTP/1.1 201 ")
            assert stopped.result(PATIENCE) == 0
        finally:
            server.stop()
        assert queue.store.count(Filter(), limit=10) == 1


def connect(server: ServerProcess) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE)


def listens(server: ServerProcess) -> bool:
    with contextlib.suppress(OSError), connect(server):
        return True
    return False
