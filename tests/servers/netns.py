"""How does one machine play several? Network namespaces, each with its own address, on one bridge."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Self

# A network for documentation: it leads nowhere.
_NETWORK = "198.51.100"


def cannot() -> str | None:
    """Why namespaces cannot be made here, or None."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "network namespaces need Linux and root"
    name = f"wl-try-{os.getpid()}"
    try:
        _ip("netns", "add", name)
    except (OSError, subprocess.CalledProcessError):
        return "this machine does not let us make a network namespace (apt-get install iproute2?)"
    _ip("netns", "delete", name)
    return None


class Hosts:
    """A server's address in a namespace of its own and so many hosts beside it, each in its own."""

    def __init__(self, count: int) -> None:
        mark = os.getpid() % 100_000
        self.server = f"wl{mark}s"
        self.names = [f"wl{mark}h{number}" for number in range(count)]
        self.address = f"{_NETWORK}.1"
        self.network = f"{_NETWORK}.0/24"
        self._made: list[str] = []
        try:
            self._make()
        except BaseException:
            self.close()
            raise

    def enter(self, name: str) -> list[str]:
        """The words before a command that let it run on a host."""
        return ["ip", "netns", "exec", name]

    def close(self) -> None:
        """Take them away, with their interfaces."""
        for name in self._made:
            subprocess.run(["ip", "netns", "delete", name], check=False)
        self._made.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _make(self) -> None:
        for name in (self.server, *self.names):
            _ip("netns", "add", name)
            self._made.append(name)
            _ip("-n", name, "link", "set", "lo", "up")
        _ip("-n", self.server, "link", "add", "bridge", "type", "bridge")
        _ip("-n", self.server, "address", "add", f"{self.address}/24", "dev", "bridge")
        _ip("-n", self.server, "link", "set", "bridge", "up")
        for number, name in enumerate(self.names, start=2):
            port = f"port{number}"
            _ip("-n", self.server, "link", "add", port, "type", "veth", "peer", "eth0", "netns", name)
            _ip("-n", self.server, "link", "set", port, "master", "bridge", "up")
            _ip("-n", name, "address", "add", f"{_NETWORK}.{number}/24", "dev", "eth0")
            _ip("-n", name, "link", "set", "eth0", "up")


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)
