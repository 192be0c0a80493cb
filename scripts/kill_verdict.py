"""What happened in a run of kill_run.py, and which promises held?"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import kill_app
from kill_stores import Outage, Place

from proofs import lives
from windlass.job import Job, JobState


class Bounds(NamedTuple):
    """How many seconds may pass before a promise is broken."""

    rerun: float = 15.0
    # A worker records an execution's end within this time, if it is left alive.
    recorded: float = 5.0
    # After an outage everybody has found the store again within this time.
    reconnected: float = 6.0

    def times(self, slack: float) -> "Bounds":
        """On a machine that has so much else to do."""
        return Bounds(*(slack * each for each in self))


class Execution(NamedTuple):
    """One run of a handler; `ended` is None if it was cut off."""

    job: str
    attempt: int
    pid: int
    started: float
    ended: float | None
    failed: bool


class Log:
    """The executions so far, read from where the last look ended."""

    def __init__(self, path: Path) -> None:
        path.touch()
        self._file = path.open()
        # Of a line that is being written.
        self._half = ""
        self._open: dict[tuple[str, int, int], float] = {}
        self._closed: list[Execution] = []

    def read(self) -> None:
        """Take in what was written since the last look."""
        for text in self._file:
            line, self._half = self._half + text, ""
            if not line.endswith("\n"):
                self._half = line
                return
            at, event, job, attempt, pid = line.split()
            run = (job, int(attempt), int(pid))
            if event == "start":
                self._open[run] = float(at)
            else:
                started = self._open.pop(run)
                self._closed.append(Execution(*run, started, float(at), failed=event == "fail"))

    def running(self) -> dict[int, list[Execution]]:
        """What has begun and not ended, by process."""
        found: defaultdict[int, list[Execution]] = defaultdict(list)
        for run, started in self._open.items():
            found[run[2]].append(Execution(*run, started, None, failed=False))
        return found

    def all(self) -> dict[str, list[Execution]]:
        """Every execution by job, in the order in which they began."""
        cut = [each for runs in self.running().values() for each in runs]
        found: defaultdict[str, list[Execution]] = defaultdict(list)
        for each in sorted([*self._closed, *cut], key=lambda each: each.started):
            found[each.job].append(each)
        return found

    def ended(self) -> int:
        """How many executions ran to their end."""
        return len(self._closed)


@dataclass
class Kill:
    """One worker's violent end, and what it was doing."""

    at: float
    pid: int
    cut_off: list[Execution] = field(default_factory=list)


class Facts:
    """All that is known after a run, and what was promised about it."""

    def __init__(
        self,
        place: Place,
        runs: dict[str, list[Execution]],
        kills: list[Kill],
        accepted: list[str],
        jobs: dict[str, Job],
        bounds: Bounds,
    ) -> None:
        self._place = place
        self._bounds = bounds
        self._runs = runs
        self._kills = kills
        self._accepted = accepted
        self._jobs = jobs
        self._promises: list[tuple[str, bool, str]] = []

    def promise(self, text: str, *, held: bool, told: str = "") -> None:
        """Note whether a promise held."""
        self._promises.append((text, held, told))

    def report(self) -> bool:
        """Check and print everything; whether all promises held."""
        self._check_jobs()
        self._check_kills()
        self._check_runs()
        self._check_file()
        self._describe()
        for text, held, told in self._promises:
            print(f"  {'held  ' if held else 'BROKEN'}  {text}{f': {told}' if told else ''}")
        held = all(held for _, held, _ in self._promises)
        print("every promise held" if held else "A PROMISE WAS BROKEN")
        return held

    def _check_jobs(self) -> None:
        absent = [name for name in self._accepted if name not in self._jobs]
        self.promise("no accepted job is absent", held=not absent, told=few(absent))
        unasked = set(self._jobs) - set(self._accepted)
        self.promise(
            "no job is there that nobody was answered for", held=not unasked, told=few(sorted(unasked))
        )
        ended = {JobState.COMPLETED, JobState.DEAD}
        open_ones = [job.id for job in self._jobs.values() if job.state not in ended]
        self.promise("every accepted job is completed or dead", held=not open_ones, told=few(open_ones))
        over = [job.id for job in self._jobs.values() if job.attempts > job.max_attempts]
        over += [name for name, runs in self._runs.items() if len(runs) > kill_app.MAX_ATTEMPTS]
        self.promise("no job ran more often than max_attempts", held=not over, told=few(over))
        strange = lives.strange(self._jobs.values())
        self.promise("every life is one of the lease model's", held=not strange, told=few([*strange.items()]))

    def _check_kills(self) -> None:
        misses = [kill.pid for kill in self._kills if not kill.cut_off]
        # What a worker ran when it was chosen may have ended when it is killed.
        hits = len(self._kills) - len(misses)
        self.promise("kills hit running jobs", held=hits > len(misses), told=f"{hits} of {len(self._kills)}")
        late = [
            rerun.started - kill.at
            for kill, rerun in self._reruns()
            if rerun.started - kill.at - self._away(kill.at, rerun.started) >= self._bounds.rerun
        ]
        within = f"{self._bounds.rerun:g} s"
        self.promise(f"what was cut off runs again within {within}", held=not late, told=few(late))
        never = [
            run.job
            for kill in self._kills
            for run in kill.cut_off
            if self._rerun(run, kill) is None and self._jobs[run.job].state is not JobState.DEAD
        ]
        self.promise("what was cut off ran again, or is dead", held=not never, told=few(never))

    def _check_runs(self) -> None:
        killed = {kill.pid: kill.at for kill in self._kills}
        twice = [
            run.job
            for runs in self._runs.values()
            for run in runs[:-1]
            if not run.failed and not self._excused(run, killed)
        ]
        self.promise("nothing ran again that no kill had touched", held=not twice, told=few(twice))
        unseen = [
            job.id
            for job in self._jobs.values()
            if job.state is JobState.COMPLETED and not any(run.ended for run in self._runs.get(job.id, []))
        ]
        self.promise("no job is completed that no handler completed", held=not unseen, told=few(unseen))

    def _check_file(self) -> None:
        unsound = self._place.problems()
        self.promise("the store's files are sound", held=not unsound, told=few(unsound))
        problems = kill_app.queue.store.check()
        self.promise("the store's own check finds nothing", held=not problems, told=few(problems))

    def _excused(self, run: Execution, killed: dict[int, float]) -> bool:
        """Whether a kill can be the reason for another execution after this; an outage alone never is."""
        if run.pid not in killed:
            return False
        if run.ended is None:
            return True
        at = killed[run.pid]
        return at - run.ended < self._bounds.recorded + self._away(run.ended, at)

    def _away(self, since: float, until: float) -> float:
        """For how many seconds between two moments nothing could be recorded."""
        return sum(
            max(0.0, min(until, each.over + self._bounds.reconnected) - max(since, each.at))
            for each in self._place.outages
        )

    def _waits(self) -> list[float]:
        """Seconds from each kill to the next start of what it cut off."""
        return sorted(rerun.started - kill.at for kill, rerun in self._reruns())

    def _reruns(self) -> list[tuple[Kill, Execution]]:
        """Each kill with the next start of what it cut off."""
        found = [(kill, self._rerun(run, kill)) for kill in self._kills for run in kill.cut_off]
        return [(kill, rerun) for kill, rerun in found if rerun is not None]

    def _rerun(self, cut: Execution, kill: Kill) -> Execution | None:
        return next((run for run in self._runs[cut.job] if run.started > kill.at), None)

    def _recovery(self, outage: Outage) -> str:
        """How soon after an outage the first job began."""
        starts = sorted(run.started for runs in self._runs.values() for run in runs)
        first = next((start for start in starts if start > outage.over), None)
        later = (
            "no job began later" if first is None else f"the next job began {first - outage.over:.2f} s later"
        )
        return f"{outage.over - outage.at:.2f} s away, {later}"

    def _describe(self) -> None:
        states = Counter(job.state.value for job in self._jobs.values())
        often = Counter(len(runs) for runs in self._runs.values())
        ends = Counter(sum(1 for run in runs if run.ended and not run.failed) for runs in self._runs.values())
        twice = sum(count for times, count in ends.items() if times > 1)
        waits = self._waits()
        cut = sum(len(kill.cut_off) for kill in self._kills)
        times_run = ", ".join(f"{times} x {count}" for times, count in sorted(often.items()))
        print(f"jobs accepted        {len(self._accepted)}: {dict(states)}")
        print(f"kills                {len(self._kills)}, jobs cut off {cut}")
        print(f"executions by job    {times_run}")
        print(f"completed twice      {twice} (killed after the work and before its record)")
        for outage in self._place.outages:
            print(f"{outage.what:<20} {self._recovery(outage)}")
        if waits:
            told = (f"{name} {at(waits, share):.2f}" for name, share in SHARES.items())
            print(f"kill to next start   {', '.join(told)} s")


SHARES = {"min": 0.0, "p50": 0.5, "p90": 0.9, "max": 1.0}


def at(values: list[float], share: float) -> float:
    """The value that such a share of the sorted values does not exceed."""
    return values[min(len(values) - 1, int(share * len(values)))]


def few(things: Sequence[object]) -> str:
    """The first few, and how many there are."""
    shown = ", ".join(str(thing) for thing in things[:5])
    return f"{shown} ... ({len(things)})" if len(things) > 5 else shown  # noqa: PLR2004 - a line's worth
