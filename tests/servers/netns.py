"""How does one machine play several? Network namespaces, each with its own address, on one bridge."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Self

# Of the networks that are set aside for measurements, one for each process that asks.
_NETWORK = f"198.18.{os.getpid() % 250}"


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
    """So many hosts, each in a namespace of its own, and a bridge to this one."""

    def __init__(self, count: int) -> None:
        mark = os.getpid() % 100_000
        self._bridge = f"wl{mark}"
        self.names = [f"wl{mark}h{number}" for number in range(count)]
        # Where they reach us.
        self.address = f"{_NETWORK}.1"
        self.network = f"{_NETWORK}.0/24"
        self._made: list[str] = []
        self._bridged = False
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
        if self._bridged:
            subprocess.run(["ip", "link", "delete", self._bridge], check=False)
            self._bridged = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _make(self) -> None:
        _ip("link", "add", self._bridge, "type", "bridge")
        self._bridged = True
        _ip("address", "add", f"{self.address}/24", "dev", self._bridge)
        _ip("link", "set", self._bridge, "up")
        for number, name in enumerate(self.names, start=2):
            _ip("netns", "add", name)
            self._made.append(name)
            port = f"{self._bridge}p{number}"
            _ip("link", "add", port, "type", "veth", "peer", "eth0", "netns", name)
            _ip("link", "set", port, "master", self._bridge, "up")
            _ip("-n", name, "address", "add", f"{_NETWORK}.{number}/24", "dev", "eth0")
            _ip("-n", name, "link", "set", "lo", "up")
            _ip("-n", name, "link", "set", "eth0", "up")


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)
