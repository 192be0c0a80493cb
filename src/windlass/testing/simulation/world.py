"""The world: its processes, the steps that are possible, and the choice between them."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

from windlass import connect
from windlass.clock import ManualClock
from windlass.context import Context
from windlass.errors import StoreError, WindlassError
from windlass.store.migration import FOLDER
from windlass.store.sqlite.connection import Connection
from windlass.testing.simulation.checker import Checker
from windlass.testing.simulation.determinism import Openings, by_chance, reseed
from windlass.testing.simulation.people import Operator, Person, Producer, Timekeeper
from windlass.testing.simulation.process import Killed, Process
from windlass.testing.simulation.worker import Worker

_MOST_WORKERS = 3
# By how many seconds the wall clock is wrong at most.
_MOST_WRONG = 300
# How much a world likes a kind of step, by chance; those that it needs it never dislikes altogether.
_LIKES = (0.0, 0.3, 1.0, 1.0, 4.0)
_LIKES_NEEDED = (0.1, 0.3, 1.0, 3.0)
_NEEDED = frozenset({"new worker", "start", "claimer", "settler", "begin", "end"})
# By these the fleet finds out who is dead: where they come at random, no worker ever is.
_STEADY = frozenset({"time", "heartbeat", "reaper", "thaw", "heal"})
# However much people do, time goes on and workers work.
_MOST_PEOPLE = 4.0
# Time goes on to the next tick of a loop, or in leaps.
_LEAPS = (0.01, 1.0, 5.0, 31.0)
_LEAP_WEIGHTS = (0.5, 6, 0.1, 0.05)
# How long the machine sleeps, and by how much its clock jumps ahead when it was set wrong before.
_SLEEPS = (timedelta(minutes=2), timedelta(hours=1), timedelta(hours=9))
_LONG_AGO = timedelta(days=31)
# Of a hundred worlds, in how many a newer release comes with migrations.
_MIGRATING = 30
# What SQLite allows at most.
_ALL_PAGES = 4294967294
# By when everything has ended after the last fault.
_CALM_SECONDS = 40_000.0
_CALM_STEPS = 20_000


class Step(NamedTuple):
    """One step: who does what, and the seed of what is chosen within it."""

    who: str
    what: str
    seed: int


class Started(NamedTuple):
    """A handler was called."""

    step: int
    job: str
    attempt: int
    fence: int


class World:
    """A store and those who use it, on one thread."""

    def __init__(self, folder: Path, clock: ManualClock, faults: frozenset[str]) -> None:
        self.path = folder / "jobs.db"
        self.url = f"sqlite:///{self.path}"
        self.clock = clock
        self.faults = faults
        self.verbs = self.steps = 0
        self.lines: list[str] = []
        # The names of the statements that were run since they were last noted; None: they are not kept.
        self.statements: list[str] | None = None
        self.started: list[Started] = []
        # Leases under which a handler returned, or completed its job in its own transaction.
        self.returned: set[tuple[str, int]] = set()
        # Side effects that handlers made under `ctx.once`, by job.
        self.effects: Counter[str] = Counter()
        self.migrations = _newer_release(folder) if "migration" in faults else None
        self.migrated = self.migrations is None
        self._full = False
        # No more faults: everything comes to its end.
        self.calm = False
        self._likes: dict[str, float] = {}
        self._made = 0
        self._wrong = 0
        # When a clock last jumped or the machine slept; and when a clock last jumped by weeks.
        self.disturbed = self.jumped = -math.inf
        self.workers: list[Worker] = []
        self.operator = Operator(self, "operator")
        self.people: list[Person] = [Producer(self, "producer", 2), Producer(self, "old producer", 1)]
        self.people += [self.operator, Operator(self, "second operator")]
        self.timekeeper = Timekeeper(self, "scheduler", 1)
        self.checker = Checker(self)

    # --- one step ---

    def choose(self, chance: random.Random) -> Step:
        """The next step, by chance among those that are possible."""
        options = [(who, what, weight * self._liking(what, chance)) for who, what, weight in self._options()]
        people = {each.name for each in self.people}
        asked = sum(weight for who, _, weight in options if who in people)
        share = min(1.0, _MOST_PEOPLE / asked) if asked else 1.0
        weights = [weight * (share if who in people else 1.0) for who, _, weight in options]
        [(who, what, _)] = chance.choices(options, weights)
        return Step(who, what, chance.getrandbits(48))

    def _liking(self, what: str, chance: random.Random) -> float:
        """Each world has its own character: in one no job is cancelled, in another workers freeze often."""
        if self.calm or what in _STEADY:
            return 1.0
        if what not in self._likes:
            self._likes[what] = chance.choice(_LIKES_NEEDED if what in _NEEDED else _LIKES)
        return self._likes[what]

    def _options(self) -> Iterable[tuple[str, str, float]]:
        # Mostly time waits until every process has done what is due; in calm it always does.
        busy = any(each.is_due() for each in self.workers)
        if not (self.calm and busy):
            yield "world", "time", 0.3 if busy else 20.0
        if self.calm:
            # One of the newest release, which can read every payload.
            if not any(not each.drained and each.release > 1 for each in self.workers):
                yield "world", "new worker", 1.0
        else:
            if sum(not each.drained for each in self.workers) < _MOST_WORKERS:
                yield "world", "new worker", 1.0
            yield from (("world", what, weight) for what, weight in self._faults() if weight)
        for process in self.workers if self.calm else self.processes:
            yield from ((process.name, what, weight) for what, weight in process.options())

    def _faults(self) -> Iterable[tuple[str, float]]:
        for fault, weight in (("jump", 0.1), ("sleep", 0.05), ("restart", 0.1)):
            yield fault, weight if fault in self.faults else 0.0
        if "disk full" in self.faults:
            yield ("free the disk", 0.5) if self._full else ("disk full", 0.1)
        if not self.migrated:
            yield "migrate", 0.3

    @property
    def processes(self) -> list[Process]:
        """All that are there."""
        return [*self.people, self.timekeeper, *self.workers]

    def do_if_possible(self, step: Step) -> None:
        """Carry out a step of a replay, unless it is not possible because others were left out."""
        if any((who, what) == step[:2] for who, what, _ in self._options()):
            self.do(step)

    def do(self, step: Step) -> None:
        """Carry out a step."""
        self.steps += 1
        reseed(step.seed)
        self.note(f"{step.who}: {step.what}")
        if step.who == "world":
            self._do(step.what)
        else:
            self._let_do(next(each for each in self.processes if each.name == step.who), step.what)
        self.note_statements("a handler's own transaction")
        self.checker.check(step)

    def _let_do(self, process: Process, what: str) -> None:
        try:
            process.do(what)
        except Killed:
            process.kill()
        except WindlassError as error:
            self.note(f"failed: {error}")
        self.workers = [each for each in self.workers if each.alive]

    def _do(self, what: str) -> None:
        if what == "time":
            self._pass_time()
        elif what == "jump":
            self._jump(random.randint(-_MOST_WRONG, _MOST_WRONG))
            if by_chance(0.2):
                self.clock.jump(_LONG_AGO)
                self.jumped = self.disturbed
        elif what == "sleep":
            self.clock.advance(random.choice(_SLEEPS))
            self.disturbed = self.clock.monotonic()
        elif what == "restart":
            self._restart()
        elif what == "migrate":
            self._migrate(killed=by_chance(0.7))
        elif what == "new worker":
            self._add_worker()
        else:
            self._set_room(full=what == "disk full")

    def _add_worker(self) -> None:
        self._made += 1
        release = 2 if self.calm else random.choice((1, 2))
        try:
            self.workers.append(Worker(self, f"w{self._made}", release))
        except StoreError as error:
            self.note(f"did not start: {error}")

    def _restart(self) -> None:
        """Every process closes its files, the last one empties the log; half of the times, none survives."""
        if by_chance(0.3):
            for worker in self.workers:
                worker.kill()
            self.workers = []
        for process in self.processes:
            process.close_files()
        self.checker.close()
        self.checker.open()
        for process in self.processes:
            process.open_files()

    def _set_room(self, *, full: bool) -> None:
        """A full disk: the file may not grow any more, and SQLite itself says so."""
        self._full = full
        pages = 1 if full else _ALL_PAGES
        Openings.prepare = lambda connection: connection.execute(f"pragma max_page_count = {pages}")
        for process in self.processes:
            process.set_room(pages)

    def _migrate(self, *, killed: bool) -> None:
        """Bring the store to the newer schema, while all others go on; killed at some point of it."""
        before, left = Openings.prepare, random.randrange(40) if killed else -1

        def watch(connection: Connection) -> None:
            before(connection)
            connection.set_progress_handler(count, 10)

        def count() -> int:
            nonlocal left
            left -= 1
            return left == 0

        Openings.prepare = watch
        try:
            connect.migrate(self.url, migrations=self.migrations)
        except StoreError as error:
            self.note(f"the migration was killed: {error}")
        else:
            self.migrated = True
        finally:
            Openings.prepare = before

    def _jump(self, wrong: int) -> None:
        self.disturbed = self.clock.monotonic()
        self.clock.jump(timedelta(seconds=wrong - self._wrong))
        self._wrong = wrong

    def _pass_time(self) -> None:
        now = self.clock.monotonic()
        ticks = [each.next_tick for each in self.workers]
        wait = min((tick for tick in ticks if tick is not None), default=now + 1.0) - now
        if not self.calm:
            wait = random.choices((wait, *_LEAPS), (2, *_LEAP_WEIGHTS))[0]
        # Clocks go in microseconds: never a little less than until the next tick.
        self.clock.advance(min(math.ceil(wait * 1e6) / 1e6 + 1e-6, _LEAPS[-1]))

    # --- the end ---

    def quieten(self, chance: random.Random) -> None:
        """No more faults: everything that was accepted comes to its end, or a promise is broken."""
        self.calm = True
        for process in self.processes:
            process.heal()
        self._jump(0)
        self._set_room(full=False)
        if not self.migrated:
            self._migrate(killed=False)
        self.operator.resume_all()
        end = self.clock.monotonic() + _CALM_SECONDS
        for _ in range(_CALM_STEPS):
            if not self.checker.unfinished():
                return
            if self.clock.monotonic() > end:
                break
            self.do(self.choose(chance))
        self.checker.fail("liveness", f"in calm, {self.checker.unfinished()} did not end")

    def close(self) -> None:
        """End every process."""
        for process in self.processes:
            process.heal()
            process.kill()
        Openings.prepare = lambda _: None
        self.checker.close()

    # --- what happened ---

    def note_start(self, process: Process, ctx: Context) -> None:
        """A handler was called."""
        self.started.append(Started(self.steps, ctx.id, ctx.attempt, ctx.fence))
        self.note(f"{process.name} runs {ctx.type} {ctx.id[-6:]}, attempt {ctx.attempt}")

    def note_return(self, ctx: Context) -> None:
        """A handler returned, or is about to complete its job itself."""
        self.returned.add((ctx.id, ctx.fence))

    def note_effect(self, job: str) -> None:
        """A side effect that shall happen once."""
        self.effects[job] += 1

    def undo_effect(self, job: str) -> None:
        """It surely did not happen."""
        self.effects[job] -= 1

    def note_statements(self, verb: str) -> None:
        """Add the statements that were run since the last time."""
        if self.statements:
            ran = [
                f"{name} x{count}" if count > 1 else name for name, count in Counter(self.statements).items()
            ]
            self.lines.append(f"{'':18}{verb}: {', '.join(ran)}")
            self.statements.clear()

    def note(self, line: str) -> None:
        """Add a line to the story."""
        # The folder is another one in each run.
        said = line.replace(str(self.path), self.path.name)
        self.lines.append(f"{self.steps:5d} {self.clock.monotonic():9.2f}  {said}")


def _newer_release(folder: Path) -> Path | None:
    """In some worlds: all migrations that we have and two more, one of them statement by statement."""
    if random.randrange(100) >= _MIGRATING:
        return None
    newer = folder / "migrations"
    newer.mkdir()
    known = sorted([*FOLDER.glob("*.sql"), *(FOLDER / "sqlite").glob("*.sql")], key=lambda path: path.name)
    for path in known:
        (newer / path.name).symlink_to(path)
    number = int(known[-1].name.partition("_")[0])
    for name, text in _MIGRATIONS.items():
        number += 1
        (newer / f"{number:04}_{name}.sql").write_text(text)
    return newer


_MIGRATIONS = {
    "moods": """-- expand, statement by statement
create table if not exists windlass.moods (job_id text primary key, mood text not null) strict, without rowid;
create index if not exists windlass.moods_mood on windlass.moods (mood);
insert or ignore into windlass.moods select id, 'good' from windlass.jobs;
""",
    "places": """-- expand
alter table windlass.jobs add column place text;
alter table windlass.archive add column place text;
update windlass.jobs set place = 'here';
update windlass.archive set place = 'there';
create index windlass.jobs_place on windlass.jobs (place);
""",
}
