"""Each call, execution and fault of a run, with its start and its end, in one file of lines.

Every process appends to the same file, each line in one write. A process that is killed leaves calls without
an end: their outcome is not known. `HISTORY_FILE` names the file and `HISTORY_PROCESS` the process: a worker
passes both on to its children and commands, so that a fault of the worker is known to be theirs, too.
"""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import count
from pathlib import Path
from typing import Any

from windlass.errors import InvalidValue, Refused
from windlass.job import NewJob
from windlass.store.engine import Enqueued
from windlass.store.store import Store

FILE, PROCESS = "HISTORY_FILE", "HISTORY_PROCESS"
# How every line begins.
_FIRST = b'{"at":'


class Verb(StrEnum):
    """What a call is about. Other verbs are actions of an operator, such as cancel and replay."""

    ENQUEUE = "enqueue"
    # A handler's execution.
    RUN = "run"
    # Faults. A stop is a polite request to end; a cut-off leaves a process alive without its store.
    KILL = "kill"
    STOP = "stop"
    FREEZE = "freeze"
    CUT_OFF = "cut-off"
    # The store is away for all.
    OUTAGE = "outage"


FAULTS = frozenset({Verb.KILL, Verb.STOP, Verb.FREEZE, Verb.CUT_OFF, Verb.OUTAGE})


class Outcome(StrEnum):
    """How a call ended. A handler that returned has answered, one that raised has refused."""

    ANSWERED = "answered"
    REFUSED = "refused"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class Call:
    """One call; without an end it goes on, or its process is gone."""

    id: str
    verb: str
    start: float
    process: str = ""
    # What it is about: ids, as far as the caller knew them.
    jobs: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    attempt: int = 0
    end: float | None = None
    outcome: Outcome = Outcome.UNKNOWN
    # The ids that were answered, and the state: of the job for an action, how many are new for an enqueue.
    answer: tuple[str, ...] = ()
    state: str = ""
    # What only the script that wrote it knows, such as a name or a request.
    note: str = ""

    @property
    def job(self) -> str:
        """The one job that it is about; empty if it is about none."""
        return self.jobs[0] if self.jobs else ""

    @property
    def answered(self) -> bool:
        """Whether it was answered, or the handler returned."""
        return self.outcome is Outcome.ANSWERED


@dataclass(slots=True)
class Answer:
    """What the caller was answered: set within `Recorder.call`."""

    ids: Iterable[str] = ()
    state: str = ""
    # None: by whether the block raised.
    outcome: Outcome | None = None


class Recorder:
    """Appends lines for one process; safe from any thread, and across a fork."""

    def __init__(self, path: Path | str, process: str = "") -> None:
        self.path = Path(path)
        self.process = process or str(os.getpid())
        self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._numbers = count()

    @contextmanager
    def call(
        self,
        verb: str,
        *jobs: str,
        keys: Iterable[str] = (),
        attempt: int = 0,
        refused: type[BaseException] | tuple[type[BaseException], ...] = Exception,
        note: str = "",
    ) -> Iterator[Answer]:
        """Record a call around the block: refused if that raises one of `refused`, else unknown."""
        name = self.begin(verb, jobs, keys=tuple(keys), attempt=attempt, note=note)
        answer = Answer()
        try:
            yield answer
        except BaseException as error:
            self.finish(name, Outcome.REFUSED if isinstance(error, refused) else Outcome.UNKNOWN)
            raise
        self.finish(name, answer.outcome or Outcome.ANSWERED, answer=tuple(answer.ids), state=answer.state)

    def enqueue(self, store: Store, jobs: Sequence[NewJob], note: str = "") -> list[Enqueued]:
        """Store jobs and record it; `state` says how many of them are new."""
        keys = [job.key for job in jobs if job.key is not None]
        ids, refused = [job.id for job in jobs], (InvalidValue, Refused)
        with self.call(Verb.ENQUEUE, *ids, keys=keys, refused=refused, note=note) as call:
            answers = store.enqueue(jobs)
            call.ids = [answer.id for answer in answers]
            call.state = f"{sum(answer.created for answer in answers)} created"
        return answers

    @contextmanager
    def run(self, job: str, attempt: int, note: str = "") -> Iterator[None]:
        """Record a handler's execution around the block."""
        with self.call(Verb.RUN, job, attempt=attempt, refused=BaseException, note=note):
            yield

    @contextmanager
    def fault(self, what: Verb, process: str = "*", *, job: str = "", note: str = "") -> Iterator[None]:
        """Record a fault around the block: of one process or of all, for one of its jobs or for all."""
        name = self.begin(what, (job,) if job else (), process=process, note=note)
        yield
        self.finish(name, Outcome.ANSWERED)

    def begin(self, verb: str, jobs: Iterable[str] = (), *, process: str = "", **fields: Any) -> str:
        """Record a start; the name of the call."""
        name = f"{os.getpid()}-{next(self._numbers)}-{time.monotonic_ns():x}"
        self._write(call=name, verb=verb, process=process or self.process, jobs=tuple(jobs), **fields)
        return name

    def finish(self, call: str, outcome: Outcome, **fields: Any) -> None:
        """Record an end."""
        self._write(call=call, outcome=outcome, **fields)

    def _write(self, **fields: Any) -> None:
        line = {"at": round(time.time(), 6)} | {name: value for name, value in fields.items() if value}
        os.write(self._file, f"{json.dumps(line)}\n".encode())

    def new_name(self) -> str:
        """A name for another process."""
        return f"{self.process}-{next(self._numbers)}"

    def environment(self, process: str) -> dict[str, str]:
        """What a process needs to record under this name in the same file."""
        return {FILE: str(self.path), PROCESS: process}

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._file)


def from_environment(default: str = os.devnull) -> Recorder:
    """The recorder that a worker's application uses; without a file it writes to nowhere."""
    return Recorder(os.environ.get(FILE, default), os.environ.get(PROCESS, ""))


_SHELL = r"""
call="\"call\": \"$WINDLASS_JOB_ID-$WINDLASS_ATTEMPT-$$\""
note() { echo "{\"at\": $(date +%s.%N), $call, $1}" >> "$HISTORY_FILE"; }
note "\"verb\": \"run\", \"process\": \"$HISTORY_PROCESS\", \"jobs\": [\"$WINDLASS_JOB_ID\"],\
 \"attempt\": $WINDLASS_ATTEMPT"
if COMMAND; then note "\"outcome\": \"answered\""; else note "\"outcome\": \"refused\""; exit 1; fi
"""


def shell_command(command: str) -> str:
    """The command of a shell job, with its start and its end recorded."""
    return _SHELL.replace("COMMAND", command)


@dataclass
class Reader:
    """The calls so far, read from where the last look ended."""

    path: Path
    calls: list[Call] = field(default_factory=list)
    # Lines of which a part is missing: their process was killed while it wrote.
    torn: int = 0

    def __post_init__(self) -> None:
        self.path.touch()
        self._offset = 0
        self._open: dict[str, Call] = {}
        self.ended = 0

    def read(self) -> list[Call]:
        """Take in what was written since the last look; all calls so far."""
        with self.path.open("rb") as file:
            file.seek(self._offset)
            # Up to the last whole line: one may be on its way.
            whole, found, _ = file.read().rpartition(b"\n")
        self._offset += len(whole) + len(found)
        for line in whole.splitlines():
            try:
                # What a killed process has left of a line is before the next process's line.
                self._take(json.loads(line[max(0, line.rfind(_FIRST)) :]))
            except (ValueError, KeyError):
                self.torn += 1
        return self.calls

    def _take(self, line: Mapping[str, Any]) -> None:
        name = line["call"]
        if "verb" not in line:
            call = self._open.pop(name)
            call.end, call.outcome = float(line["at"]), Outcome(line["outcome"])
            call.answer, call.state = tuple(line.get("answer", ())), line.get("state", "")
            self.ended += call.verb == Verb.RUN
            return
        call = Call(
            name,
            line["verb"],
            float(line["at"]),
            line.get("process", ""),
            tuple(line.get("jobs", ())),
            tuple(line.get("keys", ())),
            line.get("attempt", 0),
            note=line.get("note", ""),
        )
        self._open[name] = call
        self.calls.append(call)

    def running(self) -> dict[str, list[Call]]:
        """Executions that have begun and not ended, by process."""
        found: defaultdict[str, list[Call]] = defaultdict(list)
        for call in self._open.values():
            if call.verb == Verb.RUN:
                found[call.process].append(call)
        return found

    def of(self, verb: str) -> list[Call]:
        """The calls of a verb."""
        return [call for call in self.calls if call.verb == verb]
