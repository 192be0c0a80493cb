"""Peers that live in Node: node.mjs has their producers and their workers."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

from bench.drive import contract

_WEEK = 7 * 86_400
_END_SECONDS = 5.0


class Driver(contract.Driver):
    """A producer in Node, asked by a line of JSON; its packages are in this Python's environment."""

    # What node.mjs calls it.
    peer: ClassVar[str]
    _node: subprocess.Popen[str]

    def setup(self) -> None:
        """Start the producer, which makes what the peer needs."""
        self._node = subprocess.Popen(
            self._command("drive"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._answer()

    def enqueue(self, name: str, body: str) -> float:
        """Enqueue one job, and say when the call began in Node."""
        return float(self._ask("enqueue", name=name, body=body))

    def produce(self, body: str, seconds: float, producers: int) -> tuple[list[list[float]], float]:
        """Enqueue in Node, so that no way to it is measured."""
        taken, took = self._ask("produce", body=body, within=seconds, producers=producers)
        return taken, took

    def bulk(self, bodies: list[str]) -> None:
        """Enqueue many no-ops."""
        self.fill("noop", bodies)

    def fill(self, name: str, bodies: list[str], later: int = 0) -> None:
        """Enqueue many jobs by the peer's own bulk call."""
        runs = [(body, len(list(same))) for body, same in itertools.groupby(bodies)]
        self._ask("fill", name=name, runs=runs, later=later)

    def worker(self, concurrency: int | None) -> list[str]:
        """The command of one worker process."""
        return self._command("work", str(concurrency or 0))

    def unfinished(self) -> bool:
        """Whether the store shows a job that is not done."""
        return bool(self._ask("unfinished"))

    def crowd(self, kind: str, count: int) -> None:
        """Jobs that no worker serves, or for next week."""
        if kind == "archived":
            raise contract.Cannot("keeps no finished jobs")
        self.fill("other" if kind == "other" else "noop", ["x"] * count, 0 if kind == "other" else _WEEK)

    def close(self) -> None:
        """End the producer."""
        self._node.communicate(timeout=_END_SECONDS)

    def version(self) -> str:
        """The release of the package and of Node."""
        about = json.loads((_packages() / "node_modules" / self.package / "package.json").read_text())
        node = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout
        return f"{about['version']}, Node {node.strip().lstrip('v')}"

    def _command(self, *words: str) -> list[str]:
        return ["node", str(Path(__file__).with_suffix(".mjs")), str(_packages()), self.peer, *words]

    def _ask(self, do: str, **words: Any) -> Any:
        if self._node.stdin is None:
            raise RuntimeError("the producer has no input")
        self._node.stdin.write(json.dumps({"do": do, **words}) + "\n")
        self._node.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        line = self._node.stdout.readline() if self._node.stdout else ""
        if not line:
            raise RuntimeError(f"the producer ended with {self._node.wait(_END_SECONDS)}")
        answer = json.loads(line)
        if "failed" in answer:
            raise RuntimeError(answer["failed"])
        return answer["done"]


def _packages() -> Path:
    return Path(sys.prefix)
