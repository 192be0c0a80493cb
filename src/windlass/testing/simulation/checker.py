"""What must hold after each step. It reads the store's file and the recorded calls, and nothing else."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from windlass.testing.simulation.application import LIMIT, TICK

if TYPE_CHECKING:
    from windlass.testing.simulation.people import Call
    from windlass.testing.simulation.world import Step, World

_ENDED = frozenset({"completed", "dead", "cancelled", "discarded"})
# From a state to another, as docs/guarantees.md and the table of states have it.
_MOVES = {
    "pending": {"pending", "processing", "dead", "cancelled", "discarded"},
    "processing": {"processing", "pending", "dead", "cancelled", "completed"},
    "dead": {"dead", "pending", "discarded", "cancelled"},
    "completed": {"completed"},
    "cancelled": {"cancelled"},
    "discarded": {"discarded"},
}
# A worker whose beat is no older than this is not declared dead by others.
_SILENT_SECONDS = 10.0
_JOBS = """
    select id, type, state, attempts, max_attempts, claims, replay_count, snoozes, token, last_token, worker,
           unique_name, unique_until, unique_claims, batch, waits_for, due from windlass_jobs
    union all
    select id, type, state, attempts, max_attempts, claims, replay_count, snoozes, null, last_token, worker,
           null, null, 0, batch, 0, 0 from windlass_archive
"""
_FULL_CHECK_EVERY = 50


class Violation(AssertionError):
    """A promise was broken."""

    def __init__(self, promise: str, detail: str) -> None:
        super().__init__(f"{promise}: {detail}")
        self.promise = promise


class Checker:
    """Holds every promise after each step."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._db = sqlite3.connect(world.path, isolation_level=None)
        self._db.row_factory = sqlite3.Row
        self._db.execute("create table if not exists effects (job text not null)")
        self.jobs: dict[str, dict[str, Any]] = {}
        self.known: list[str] = []
        self.dead: list[str] = []
        self.live = 0
        self._accepted: dict[str, int] = {}
        self._keys: dict[str, str] = {}
        self._version = -1
        self._audited = 0
        self._workers: dict[str, str] = {}
        self._beats: dict[str, float] = {}
        self._finished: dict[str, int] = {}
        self._paused: set[str] = set()
        # Jobs that an operator has stopped, and at which step.
        self._stopped: dict[str, int] = {}
        self._parents: dict[str, set[str]] = {}
        self._fences: dict[tuple[str, int], int] = {}
        # Leases under which the handler was called.
        self._begun: set[tuple[str, int]] = set()
        # Jobs that had ended at some moment.
        self._once_ended: set[str] = set()

    def fail(self, promise: str, detail: str) -> None:
        """A promise is broken."""
        raise Violation(promise, detail)

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()

    def check(self, step: Step) -> None:
        """Everything, after a step; without a write nothing has changed."""
        [version] = self._db.execute("pragma data_version").fetchone()
        changed, self._version = version != self._version, version
        if changed:
            self._check_store(step)
        calls = self._world.producer.calls + self._world.operator.calls
        if calls:
            self._check_answers(calls)
        self._check_runs(step)

    def _check_store(self, step: Step) -> None:
        before, self.jobs = self.jobs, {row["id"]: dict(row) for row in self._db.execute(_JOBS)}
        self.known = sorted(self.jobs)
        self.dead = [each for each in self.known if self.jobs[each]["state"] == "dead"]
        self.live = sum(job["state"] not in _ENDED for job in self.jobs.values())
        self._once_ended |= {job["id"] for job in self.jobs.values() if job["state"] in _ENDED}
        self._check_moves(before, step)
        for job in self.jobs.values():
            if job["state"] == "processing":
                self._claimed(job["id"], job["claims"])
        self._check_bounds()
        self._check_fleet()
        self._check_batches()
        self._check_schedules()
        self._check_effects()
        if self._world.steps % _FULL_CHECK_EVERY == 0:
            self._check_whole()

    def is_dead(self, worker: str) -> bool:
        """Whether the fleet took this worker for dead, which may not know it yet."""
        return self._workers.get(worker) == "dead"

    # --- one promise each ---

    def _check_answers(self, calls: Sequence[Call]) -> None:
        """What was accepted is there, a key means one job, and each action is in the audit log."""
        for call in calls:
            if call.verb == "replay":
                # Whether or not its answer came: it may run, and waits for no job any more.
                self._stopped.pop(call.asked, None)
                self._parents.pop(call.asked, None)
            if call.answer is None:
                continue
            if call.verb in ("enqueue", "batch"):
                self._note_accepted(call)
            elif call.verb not in ("pause", "resume") or self._turned(call):
                self._audited += 1
            if call.verb in ("cancel", "bury"):
                self._stopped[call.asked] = call.step
        self._world.producer.calls.clear()
        self._world.operator.calls.clear()
        if lost := self._accepted.keys() - self.jobs.keys():
            self.fail("accepted", f"jobs {sorted(lost)} were accepted and are gone")
        [noted] = self._db.execute("select count(*) from windlass_audit where who = 'operator'").fetchone()
        if noted < self._audited:
            self.fail("audit", f"{self._audited} actions were answered, {noted} are in the audit log")

    def _note_accepted(self, call: Call) -> None:
        self._accepted |= dict.fromkeys(call.answer, call.step)
        for draft, job in zip(call.asked, call.answer, strict=True):
            if draft.key is not None and self._keys.setdefault(draft.key, job) != job:
                self.fail("keys", f"{draft.key} was answered with {self._keys[draft.key]} and {job}")
            if draft.depends_on and job == draft.id:
                self._parents[job] = set(draft.depends_on)

    def _turned(self, call: Call) -> bool:
        """Whether a pause or its end changed anything: it does so once."""
        before = call.asked in self._paused
        (self._paused.add if call.verb == "pause" else self._paused.discard)(call.asked)
        return before is not (call.verb == "pause")

    def _check_moves(self, before: dict[str, dict[str, Any]], step: Step) -> None:
        """States change along the table, and a running job only by its holder, or when that is lost."""
        for job_id, old in before.items():
            new = self.jobs.get(job_id)
            if new is None:
                self.fail("lost", f"job {job_id} was {old['state']} and is gone")
            elif new["state"] not in _MOVES[old["state"]]:
                self.fail("states", f"job {job_id} went from {old['state']} to {new['state']}")
            elif old["state"] == "processing" and new["token"] != old["token"]:
                self._check_fence(old, new, step)
            elif new["attempts"] > new["max_attempts"]:
                self.fail("attempts", f"job {job_id}: {new['attempts']} of {new['max_attempts']}")

    def _check_fence(self, old: dict[str, Any], new: dict[str, Any], step: Step) -> None:
        worker = next((each for each in self._world.workers if each.name == step.who), None)
        gone = worker is None and step.who.startswith("w")
        if step.what != "reaper" and not gone and (worker is None or worker.fleet_id != old["worker"]):
            self.fail("fence", f"{step.who} took {old['id']} from {old['worker']} by {step.what}: {new}")

    def _check_bounds(self) -> None:
        """Limits, unique names, and children that wait for their parents."""
        running = Counter(job["type"] for job in self.jobs.values() if job["state"] == "processing")
        if running["limited"] > LIMIT:
            self.fail("limits", f"{running['limited']} limited jobs run, {LIMIT} may")
        names = Counter(
            job["unique_name"]
            for job in self.jobs.values()
            if job["unique_name"] is not None
            and job["state"] in ("pending", "processing")
            and (job["unique_until"] == "done" or job["claims"] == job["unique_claims"])
        )
        if doubled := [name for name, count in names.items() if count > 1]:
            self.fail("unique", f"several live jobs have the name {doubled[0]}")
        for job in self.jobs.values():
            if job["waits_for"] and (job["due"] or job["state"] == "processing"):
                self.fail("dependents", f"job {job['id']} is due and waits for {job['waits_for']} jobs")

    def _check_fleet(self) -> None:
        """A worker that beats is not declared dead."""
        now = self._world.clock.monotonic()
        for row in self._db.execute("select id, state, beat from windlass_workers"):
            key = f"{row['id']} {row['beat']}"
            since = self._beats.setdefault(key, now)
            old, self._workers[row["id"]] = self._workers.get(row["id"]), row["state"]
            if row["state"] == "dead" and old not in (None, "dead") and now - since < _SILENT_SECONDS:
                self.fail("living", f"{row['id']} beat {now - since:.1f} s ago and was declared dead")

    def _check_batches(self) -> None:
        """A batch closes once, when all of its jobs have ended, and then enqueues its last job once."""
        for row in self._db.execute("select id, then_id, finished_at from windlass_batches"):
            members = [job for job in self.jobs.values() if job["batch"] == row["id"]]
            finished, then = row["finished_at"], row["then_id"]
            before = self._finished.get(row["id"], 0)
            if before not in (0, finished):
                self.fail("batches", f"batch {row['id']} was closed twice")
            self._finished[row["id"]] = finished or 0
            open_jobs = [job["id"] for job in members if job["state"] not in _ENDED]
            if finished and not before and open_jobs:
                self.fail("batches", f"batch {row['id']} was closed, and {open_jobs} have not ended")
            if finished is None and then in self.jobs:
                self.fail("batches", f"batch {row['id']} is open, and its last job is there")
            if finished is None and members and all(job["state"] in _ENDED for job in members):
                self.fail("batches", f"all jobs of batch {row['id']} have ended, and it is open")

    def _check_schedules(self) -> None:
        """One job for each fire time."""
        rows = self._db.execute(
            "select fire_at, count(*) as many from windlass_fires where made_by is null"
            " group by schedule, fire_at having count(*) > 1"
        )
        for row in rows:
            self.fail("schedules", f"{row['many']} fires at {row['fire_at']}")

    def _check_runs(self, step: Step) -> None:
        """A handler runs once for each claim, and a job that has ended does not run."""
        started, self._world.started = self._world.started, []
        for _, job_id, attempt, fence in started:
            if (job_id, fence) in self._begun:
                self.fail("claims", f"job {job_id} ran twice under one lease: {step}")
            self._begun.add((job_id, fence))
            job = self.jobs.get(job_id)
            if job is not None and attempt > job["max_attempts"]:
                self.fail("attempts", f"job {job_id} began attempt {attempt} of {job['max_attempts']}")
            if self._stopped.get(job_id, self._world.steps) < self._claimed(job_id, fence):
                self.fail(
                    "stopped", f"job {job_id} was stopped at step {self._stopped[job_id]} and runs again"
                )
            missing = self._parents.get(job_id, set()) - self._once_ended
            if missing:
                self.fail(
                    "dependents", f"job {job_id} runs, and its parents {sorted(missing)} have not ended"
                )

    def _claimed(self, job_id: str, fence: int) -> int:
        """The step after which a lease of the job was first seen."""
        return self._fences.setdefault((job_id, fence), self._world.steps)

    def _check_effects(self) -> None:
        """What a handler writes in its transaction is there once, and only if the job is completed."""
        effects = Counter(row["job"] for row in self._db.execute("select job from effects"))
        for job, count in effects.items():
            if count > 1 or self.jobs[job]["state"] != "completed":
                self.fail("transactions", f"{count} effects of job {job}, which is {self.jobs[job]['state']}")

    def _check_whole(self) -> None:
        store = self._world.operator.store
        if problems := store.check():
            self.fail("store", "; ".join(problems))

    # --- the end ---

    def unfinished(self) -> list[str]:
        """Jobs that have not ended, but for those below a dead parent: there an operator decides."""
        waits = self._db.execute("select parent_id, child_id from windlass_dependencies").fetchall()
        blocked = {job["id"] for job in self.jobs.values() if job["state"] == "dead"}
        while more := {child for parent, child in waits if parent in blocked} - blocked:
            blocked |= more
        return [
            f"{job['id']} is {job['state']}"
            for job in self.jobs.values()
            if job["state"] not in _ENDED and job["type"] != TICK and job["id"] not in blocked
        ]
