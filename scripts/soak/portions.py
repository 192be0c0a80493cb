"""Is the whole history possible? It is judged in portions, for an hour of it does not fit into memory.

A job belongs to the portion of the time at which its id was made, and each call to the portions of its jobs.
Faults belong to all.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.history.check import Rules, Verdict, check
from tests.history.end import End, all_jobs, look
from tests.history.record import FAULTS, Call, Outcome, Reader
from tests.history.result import Promise, few
from windlass.job import Job
from windlass.store.jobs import Filter
from windlass.store.store import Store

# Seconds of a portion.
SPAN = 120
_PAGE = 1_000
# Seconds by which jobs may be stored in another order than they have been numbered in.
_SLACK = 30.0
# Of an id of version 7: milliseconds since 1970, in hexadecimal digits without the dash.
_DIGITS = 13


def portion_of(job: str) -> int:
    """By when its id was made."""
    return int(job[:_DIGITS].replace("-", ""), 16) // (1000 * SPAN)


def parts(call: Call) -> Iterator[tuple[int, Call]]:
    """A call as each portion sees it, with that portion's jobs alone."""
    portions = {portion_of(job) for job in (*call.jobs, *call.answer)}
    if len(portions) == 1:
        yield portions.pop(), call
        return
    for portion in portions:
        mine = [portion_of(job) == portion for job in call.jobs]
        keys = tuple(key for key, own in zip(call.keys, mine, strict=False) if own)
        jobs = tuple(job for job in call.jobs if portion_of(job) == portion)
        answer = tuple(job for job in call.answer if portion_of(job) == portion)
        yield portion, replace(call, jobs=jobs, keys=keys, answer=answer)


class Files:
    """The calls of each portion, in a file each."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()
        self.portions: set[int] = set()
        self._lines: defaultdict[int, list[str]] = defaultdict(list)
        self.faults: list[Call] = []

    def add(self, call: Call) -> None:
        """Write one."""
        if call.verb in FAULTS:
            self.faults.append(call)
            return
        for portion, part in parts(call):
            lines = self._lines[portion]
            fields = [getattr(part, name) for name in Call.__slots__]
            lines.append(json.dumps(fields))
            if len(lines) >= _PAGE:
                self._write(portion)

    def flush(self) -> None:
        """Write what is left."""
        for portion in list(self._lines):
            self._write(portion)

    def _write(self, portion: int) -> None:
        self.portions.add(portion)
        with (self._folder / str(portion)).open("a", encoding="utf-8") as file:
            file.write("".join(f"{line}\n" for line in self._lines.pop(portion, [])))

    def read(self, portion: int) -> list[Call]:
        """A portion's calls."""
        if portion not in self.portions:
            return []
        with (self._folder / str(portion)).open(encoding="utf-8") as file:
            return [_call(json.loads(line)) for line in file]


def _call(fields: list[object]) -> Call:
    named = dict(zip(Call.__slots__, fields, strict=True))
    for name in ("jobs", "keys", "answer"):
        named[name] = tuple(named[name])  # type: ignore[arg-type]
    named["outcome"] = Outcome(str(named["outcome"]))
    return Call(**named)  # type: ignore[arg-type]


def split(history: Path, folder: Path) -> Files:
    """Read a history once, and sort it."""
    files, reader = Files(folder), Streaming(history)
    for call in reader.stream():
        files.add(call)
    files.flush()
    return files


class Streaming(Reader):
    """A reader that hands each call over once it has ended, and keeps none."""

    def stream(self) -> Iterator[Call]:
        """Every call, those without an end last."""
        with self.path.open("rb") as file:
            for line in file:
                if not line.endswith(b"\n"):
                    self.torn += 1
                    continue
                yield from self._taken(line)
        yield from self._open.values()

    def _taken(self, line: bytes) -> Iterator[Call]:
        try:
            # What a killed process has left of a line is before the next process's line.
            found = json.loads(line[max(0, line.rfind(b'{"at":')) :])
            ending = None if "verb" in found else self._open.get(found["call"])
            self._take(found)
        except (ValueError, KeyError):
            self.torn += 1
            return
        self.calls.clear()
        if ending is not None:
            yield ending


@dataclass
class Judged:
    """What all portions amount to."""

    promises: dict[str, list[str]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    recovery: list[float] = field(default_factory=list)
    # Which service sent which type.
    pairs: set[tuple[str, str]] = field(default_factory=set)
    jobs: int = 0

    def add(self, verdict: Verdict, jobs: Iterable[Job]) -> None:
        """Take a portion's verdict in."""
        for promise in verdict.promises:
            broken = self.promises.setdefault(promise.promise, [])
            broken += [] if promise.held else [promise.detail]
        self.counts.update({name: int(value) for name, value in verdict.counts.items()})
        self.recovery += verdict.recovery
        for job in jobs:
            self.jobs += 1
            self.pairs.add((job.caller, job.type))

    def all(self) -> list[Promise]:
        """Every promise, over all portions."""
        return [Promise(promise, not broken, few(broken)) for promise, broken in self.promises.items()]


def judge(store: Store, url: str, files: Files, rules: Rules) -> Judged:
    """Check portion after portion, then what belongs to the whole store."""
    judged = Judged()
    # No job has this type: of the whole store only its counts, its workers and its own check are wanted.
    whole = look(store, url, Filter(types=("none",)))
    seen = set()
    for portion, jobs in by_portion(all_jobs(store)):
        seen.add(portion)
        _judge(judged, files, portion, whole._replace(jobs=jobs), rules)
    for portion in files.portions - seen:
        _judge(judged, files, portion, whole._replace(jobs={}), rules)
    judged.add(check(files.faults, whole, rules), ())
    return judged


def _judge(judged: Judged, files: Files, portion: int, end: End, rules: Rules) -> None:
    # What the whole store says of itself is judged once.
    end = end._replace(counted={}, rows={}, problems=[])
    judged.add(check([*files.faults, *files.read(portion)], end, rules), end.jobs.values())


def by_portion(jobs: Iterable[Job]) -> Iterator[tuple[int, dict[str, Job]]]:
    """The jobs of each portion, from a walk that begins with those that were stored last.

    A job is stored after its id was made: once the walk has come to an earlier time, a portion is whole.
    """
    gathered: defaultdict[int, dict[str, Job]] = defaultdict(dict)
    for job in jobs:
        gathered[portion_of(job.id)][job.id] = job
        reached = job.created_at.timestamp() + _SLACK
        whole = [portion for portion in gathered if reached < portion * SPAN]
        yield from ((portion, gathered.pop(portion)) for portion in whole)
    yield from gathered.items()
