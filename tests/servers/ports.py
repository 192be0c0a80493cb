"""Where may a server that a test starts listen? On a port that nobody else is given meanwhile."""

from __future__ import annotations

import random
import socket
from contextlib import suppress

# Below those that systems hand out to whoever asks for any: between our look and the server's start nobody
# comes by one of these. Each process of a run draws for itself, whatever seed the tests have been given.
_PORTS = range(10_000, 32_000)
_chance = random.SystemRandom()


def free_port() -> int:
    """A port of the loopback on which nobody listens."""
    while True:
        port = _chance.choice(_PORTS)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
