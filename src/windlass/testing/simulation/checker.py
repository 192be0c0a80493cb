"""What must hold after each step. It reads the store's file and the recorded calls, and nothing else."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from windlass.testing.simulation.application import (
    LIMIT,
    OLD_TICK,
    RATE_SECONDS,
    SCHEDULED,
    SHARED_LIMIT,
    TICK,
)
from windlass.testing.simulation.people import PRUNED_AFTER

if TYPE_CHECKING:
    from windlass.testing.simulation.people import Call
    from windlass.testing.simulation.world import Step, World

Job = dict[str, Any]

_ENDED = frozenset({"completed", "dead", "cancelled", "discarded"})
# From a state to another, as docs/guarantees.md and the table of states have it.
_MOVES = {
    "pending": {"pending", "processing", "dead", "cancelled", "discarded"},
    "processing": {"processing", "pending", "dead", "cancelled", "completed"},
    "dead": {"dead", "pending", "discarded"},
    "completed": {"completed"},
    "cancelled": {"cancelled"},
    "discarded": {"discarded"},
}
# A worker whose beat is no older than this is not declared dead by others.
_SILENT_SECONDS = 10.0
# In calm: the lease of a dead worker is noticed within this time, and a check's first look comes after it.
_RECOVERED_SECONDS = 20.0
_KEEP_DEAD_SECONDS = 30 * 24 * 3600.0
_BELIEVED_SECONDS = 3600.0
_FREE_INTERRUPTIONS = 9
_ORPHANED_MICROS = 600 * 1_000_000
_LIVE = """
    select id, type, state, tenant, attempts, max_attempts, claims, replay_count, snoozes, interruptions,
           token, worker, lease_until, reason, finished_at, unique_name, unique_until, unique_claims, batch,
           waits_for, due
      from windlass_jobs
"""
_ARCHIVED = """
    select id, type, state, tenant, attempts, max_attempts, claims, replay_count, snoozes, interruptions,
           null as token, worker, null as lease_until, reason, finished_at, null as unique_name, batch,
           0 as waits_for, 0 as due
      from windlass_archive where id in (select value from json_each(?))
"""
_FULL_CHECK_EVERY = 50
# Of the records of pauses and their ends only those count that changed something.
_SWITCHES = ("pause", "resume")
_UNSTORABLE = """
    select id, (length(history) - length(replace(history, 'Unstorable', ''))) / length('Unstorable') as times
      from windlass_jobs where state = 'dead' and history like '%Unstorable%'
"""
# How the audit log calls what operators do to one job.
_AUDITED = {
    **{name: name for name in ("cancel", "bury", "replay", "discard", "rerun", "edit", "drain")},
    "priority": "edit",
    "reschedule": "edit",
    "run schedule": "run",
}


class Violation(AssertionError):
    """A promise was broken."""

    def __init__(self, promise: str, detail: str) -> None:
        super().__init__(f"{promise}: {detail}")
        self.promise = promise


class Checker:
    """Holds every promise after each step."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.open()
        for table in ("effects", "orders"):
            self._db.execute(f"create table if not exists {table} (job text not null)")
        # Those that have not ended, or are dead; all others; and both.
        self.rows: dict[str, Job] = {}
        self._archive: dict[str, Job] = {}
        self.jobs: dict[str, Job] = {}
        self.known: list[str] = []
        self.in_state: dict[str, list[str]] = {}
        self.live = 0
        self._accepted: dict[str, int] = {}
        # The job that a key was first answered with, and the payload that was asked for.
        self._keys: dict[tuple[str, str], tuple[str, bytes]] = {}
        # What was asked of a target, by the request that asked for it, and what was answered.
        self._asked: dict[tuple[str, str], set[str]] = {}
        self._answered: dict[tuple[str, str], set[str]] = {}
        self._switched: Counter[str] = Counter()
        self._workers: dict[str, str] = {}
        self._beats: dict[str, float] = {}
        self._finished: dict[str, int] = {}
        self._paused: set[str] = set()
        # Jobs that an operator has stopped, and at which step.
        self._stopped: dict[str, int] = {}
        self._parents: dict[str, set[str]] = {}
        # Jobs that operators let run at another time: those wait for no job.
        self._freed: set[str] = set()
        self._fences: dict[tuple[str, int], int] = {}
        # Leases under which the handler was called, and how often it was since the last replay.
        self._begun: set[tuple[str, int]] = set()
        self._starts: Counter[tuple[str, int]] = Counter()
        # Jobs that had ended at some moment, and when a job was first seen dead.
        self._once_ended: set[str] = set()
        self._completed: set[str] = set()
        self._died: dict[str, float] = {}
        # How often the completion of a job could not be stored: it is dead, and was counted as completed.
        self._unstorable: Counter[str] = Counter()
        self._pruning = False
        self._schedules: dict[str, int | None] = {}
        # Schedules that an operator has removed, which code may declare again.
        self._removed: set[str] = set()
        # Claims under the rate: by lease, when; those that never started have given theirs back.
        self._rated: dict[tuple[str, int], int] = {}
        self._rated_since, self._spent = 0.0, 0
        self._stranded: dict[str, float] = {}

    def open(self) -> None:
        """Open the file."""
        self._db = sqlite3.connect(self._world.path, isolation_level=None)
        self._db.row_factory = sqlite3.Row
        self._version = -1

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()

    def dump(self) -> str:
        """Everything that the store holds."""
        return "\n".join(self._db.iterdump())

    def fail(self, promise: str, detail: str) -> None:
        """A promise is broken."""
        raise Violation(promise, detail)

    def check(self, step: Step) -> None:
        """Everything, after a step; without a write nothing has changed."""
        calls = [call for person in self._world.people for call in person.calls]
        # Also one whose answer got lost has deleted records.
        self._pruning = any(call.verb == "prune" for call in calls)
        self._removed |= {call.asked for call in calls if call.verb == "remove schedule"}
        [version] = self._db.execute("pragma data_version").fetchone()
        changed, self._version = version != self._version, version
        if changed:
            self._check_store(step)
        if calls:
            self._check_answers(calls)
        self._check_runs(step)
        if self._world.calm:
            self._check_recovery()

    def _check_store(self, step: Step) -> None:
        before = self._read()
        self._once_ended |= {job for job in self.known if self.jobs[job]["state"] in _ENDED}
        self._completed |= set(self.in_state.get("completed", ()))
        for row in self._db.execute(_UNSTORABLE):
            self._unstorable[row["id"]] = max(self._unstorable[row["id"]], row["times"])
        self._check_moves(before, step)
        for job in self.rows.values():
            if job["state"] == "processing":
                self._claimed(job["id"], job["claims"])
        self._check_bounds()
        self._check_rate(before, step)
        self._check_lost_claims()
        self._check_fleet()
        self._check_batches(before)
        self._check_dependents()
        self._check_schedules(step)
        self._check_effects()
        if self._world.steps % _FULL_CHECK_EVERY == 0:
            self._check_whole()

    def _read(self) -> dict[str, Job]:
        """Read what has changed; the jobs of before that could have."""
        before = self.rows
        self.rows = {row["id"]: dict(row) for row in self._db.execute(_LIVE)}
        ended = {row[0] for row in self._db.execute("select id from windlass_archive")}
        gone = {job: self._archive.pop(job) for job in self._archive.keys() - ended}
        news = json.dumps(sorted(ended - self._archive.keys()))
        self._archive |= {row["id"]: dict(row) for row in self._db.execute(_ARCHIVED, (news,))}
        self.jobs = self._archive | self.rows
        self.known = sorted(self.jobs)
        self.in_state = {}
        for job in self.known:
            self.in_state.setdefault(self.jobs[job]["state"], []).append(job)
        ours = (job for job in self.rows.values() if job["type"] not in SCHEDULED)
        self.live = sum(job["state"] != "dead" for job in ours)
        return before | gone

    def is_gone(self, worker: str) -> bool:
        """Whether the fleet does not count on this worker any more."""
        return self._workers.get(worker) not in ("running", "draining")

    def is_dead(self, worker: str) -> bool:
        """Whether the fleet took this worker for dead, which may not know it yet."""
        return self._workers.get(worker) == "dead"

    # --- what was answered ---

    def _check_answers(self, calls: Sequence[Call]) -> None:
        """What was accepted is there, a key means one job, and each action is in the audit log, once."""
        for call in calls:
            if call.verb in ("replay", "reschedule"):
                # Whether or not its answer came: it may run, and waits for no job any more.
                self._stopped.pop(call.asked, None)
                self._parents.pop(call.asked, None)
                self._freed.add(call.asked)
            if call.verb in _AUDITED:
                self._asked.setdefault((_AUDITED[call.verb], call.asked), set()).add(call.request)
            if call.verb in ("enqueue", "batch", "own rows"):
                self._check_whole_request(call)
            if call.verb == "refused by name":
                self._check_refusal(call)
            elif call.answer is not None:
                self._note_answer(call)
        for person in self._world.people:
            person.calls.clear()
        if lost := self._accepted.keys() - self.jobs.keys():
            self.fail("accepted", f"jobs {sorted(lost)} were accepted and are gone")
        self._check_audit()

    def _note_answer(self, call: Call) -> None:
        if call.verb in ("enqueue", "batch", "own rows"):
            self._note_accepted(call)
        elif call.verb in _AUDITED:
            self._answered.setdefault((_AUDITED[call.verb], call.asked), set()).add(call.request)
        elif call.verb in _SWITCHES and self._turned(call):
            self._switched[call.verb] += 1
        if call.verb in ("cancel", "bury"):
            self._stopped[call.asked] = call.step

    def _check_whole_request(self, call: Call) -> None:
        """All jobs of a request are there, or none."""
        plain = [draft.id in self.jobs for draft in call.asked if draft.key is None and draft.unique is None]
        if any(plain) and not all(plain) and not self._pruning:
            self.fail("all or none", f"of {[draft.id for draft in call.asked]} only some are there")
        if call.verb == "own rows" and plain:
            ids = {row["job"] for row in self._db.execute("select job from orders")}
            if (call.asked[0].id in ids) is not any(plain):
                self.fail(
                    "all or none", f"job {call.asked[0].id} and the row beside it: one of both is there"
                )

    def _note_accepted(self, call: Call) -> None:
        self._accepted |= dict.fromkeys(call.answer, call.step)
        for draft, job in zip(call.asked, call.answer, strict=False):
            key = (draft.tenant, draft.key)
            asked = (job, bytes(draft.payload))
            if draft.key is not None and self._keys.setdefault(key, asked) != asked:
                self.fail("keys", f"{key} was answered with {self._keys[key]} and {asked}")
            if draft.key is not None and self.jobs[job]["tenant"] != draft.tenant:
                self.fail("keys", f"{key} was answered with job {job} of tenant {self.jobs[job]['tenant']!r}")
            if draft.depends_on and job == draft.id and job not in self._freed:
                self._parents[job] = set(draft.depends_on)

    def _check_refusal(self, call: Call) -> None:
        """What a live release accepts is accepted by name."""
        for worker in self._world.workers:
            if worker.release > 1 and worker.has_published:
                self.fail("releases", f"{worker.name} takes {call.asked}, which was refused: {call.answer}")

    def _turned(self, call: Call) -> bool:
        """Whether a pause or its end changed anything: it does so once."""
        before = call.asked in self._paused
        (self._paused.add if call.verb == "pause" else self._paused.discard)(call.asked)
        return before is not (call.verb == "pause")

    def _check_audit(self) -> None:
        rows = self._db.execute(
            "select verb, target, kind, count(*) as many from windlass_audit"
            " where who in ('operator', 'second operator') group by verb, target, kind"
        ).fetchall()
        noted = {(row["verb"], row["target"]): row["many"] for row in rows if row["kind"] != "type"}
        for what, requests in self._answered.items():
            # A worker that has stopped by itself needs no one to drain it.
            stopped = what[0] == "drain" and self.is_gone(what[1])
            if noted.get(what, 0) < len(requests) and not stopped:
                self.fail(
                    "audit", f"{what} was answered {len(requests)} times, {noted.get(what, 0)} are noted"
                )
        for what, requests in self._asked.items():
            if what[0] != "drain" and noted.get(what, 0) > len(requests):
                self.fail(
                    "audit", f"{what} was asked for {len(requests)} times, and done {noted[what]} times"
                )
        for verb, count in self._switched.items():
            if sum(row["many"] for row in rows if row["verb"] == verb and row["kind"] == "type") < count:
                self.fail("audit", f"{count} times {verb} was answered, and not noted each time")

    # --- one promise each ---

    def _check_moves(self, before: dict[str, Job], step: Step) -> None:
        """States change along the table, and a running job only by its holder, or when that is lost."""
        for job_id, old in before.items():
            new = self.jobs.get(job_id)
            if new is None:
                self._check_gone(old, step)
            elif new["state"] not in _MOVES[old["state"]]:
                self.fail("states", f"job {job_id} went from {old['state']} to {new['state']}")
            elif old["state"] == "processing" and new["token"] != old["token"]:
                self._check_fence(old, new, step)
            elif new["attempts"] > new["max_attempts"]:
                self.fail("attempts", f"job {job_id}: {new['attempts']} of {new['max_attempts']}")
            elif new["state"] == old["state"] == "pending" and new["attempts"] < old["attempts"]:
                self._check_replaced(new)
            elif new["state"] == "dead" != old["state"]:
                self._died[job_id] = self._world.clock.monotonic()
            if new is not None and new["state"] == "completed" != old["state"]:
                self._check_completed(new)
            if new is not None and new["state"] == "dead" and new["reason"] == "invalid_payload":
                self.fail("releases", f"job {job_id} is dead for a payload that another release can read")

    def _check_completed(self, job: Job) -> None:
        if (job["id"], job["claims"]) not in self._world.returned:
            self.fail("completions", f"job {job['id']} is completed, and its handler never returned")

    def _check_replaced(self, job: Job) -> None:
        """New work under a unique name starts with all its attempts; no other pending job gets any back."""
        if job["unique_name"] is None:
            self.fail("attempts", f"job {job['id']} waits, and got attempts back: {job}")
        self._starts[job["id"], job["replay_count"]] = 0

    def _check_gone(self, old: Job, step: Step) -> None:
        """Records go when they have ended and their retention is over, and at no other time."""
        job_id, now = old["id"], self._world.clock.micros()
        if old["state"] not in _ENDED:
            self.fail("lost", f"job {job_id} was {old['state']} and is gone")
        keep = PRUNED_AFTER.total_seconds() if self._pruning else 3600.0
        if now - old["finished_at"] < keep * 1e6:
            self.fail(
                "retention", f"job {job_id} ended {(now - old['finished_at']) / 1e6:.0f} s ago and is gone"
            )
        if old["state"] == "dead" and step.what == "pruner":
            self._check_steady(job_id)
        self._accepted.pop(job_id, None)
        self._keys = {key: job for key, job in self._keys.items() if job[0] != job_id}

    def _check_steady(self, job_id: str) -> None:
        """A clock that is wrong for less than an hour costs no dead letter."""
        now = self._world.clock.monotonic()
        lived, steady = now - self._died.get(job_id, 0.0), now - self._world.jumped
        if lived < _KEEP_DEAD_SECONDS and steady < _BELIEVED_SECONDS:
            self.fail(
                "retention", f"dead letter {job_id} went {lived:.0f} s after it died: a clock was wrong"
            )

    def _check_fence(self, old: Job, new: Job, step: Step) -> None:
        worker = next((each for each in self._world.workers if each.name == step.who), None)
        gone = worker is None and step.who.startswith("w")
        if step.what == "reaper":
            held = self._workers.get(old["worker"])
            if held in ("running", "draining") and old["lease_until"] >= self._world.clock.micros():
                lives = self._db.execute(
                    "select state from windlass_workers where id = ?", (old["worker"],)
                ).fetchone()
                if lives is not None and lives["state"] == held:
                    self.fail("fence", f"{step.who} reaped {old['id']}, whose worker lives: {new}")
        elif not gone and (worker is None or worker.fleet_id != old["worker"]):
            self.fail("fence", f"{step.who} took {old['id']} from {old['worker']} by {step.what}: {new}")

    def _check_bounds(self) -> None:
        """Limits and unique names."""
        types = Counter(job["type"] for job in self.rows.values() if job["state"] == "processing")
        if types["limited"] > LIMIT:
            self.fail("limits", f"{types['limited']} limited jobs run, {LIMIT} may")
        at_work = sum(
            worker.at_work_on("crm") for worker in self._world.workers if not self.is_gone(worker.fleet_id)
        )
        if at_work > SHARED_LIMIT:
            self.fail("limits", f"handlers of {at_work} jobs under key:crm are at work, {SHARED_LIMIT} may")
        names = Counter(
            (job["tenant"], job["unique_name"])
            for job in self.rows.values()
            if job["unique_name"] is not None
            and job["state"] in ("pending", "processing")
            and (job["unique_until"] == "done" or job["claims"] == job["unique_claims"])
        )
        if doubled := [name for name, count in names.items() if count > 1]:
            self.fail("unique", f"several live jobs have the name {doubled[0]}")

    def _check_rate(self, before: dict[str, Job], step: Step) -> None:
        """Jobs of a rate do not start sooner than it says, and one that never started has taken nothing."""
        now, interval = self._world.clock.micros(), RATE_SECONDS * 1_000_000
        for job in self.rows.values():
            if job["type"] == "rated" and job["state"] == "processing":
                self._rated.setdefault((job["id"], job["claims"]), now)
        # One may have begun and ended in this very step, by its own transaction.
        begun = self._begun | {(each.job, each.fence) for each in self._world.started}
        for lease in [lease for lease in self._rated if lease not in begun and lease[0] in before]:
            old, new = before[lease[0]], self.jobs.get(lease[0], {"token": None})
            ended = old["claims"] == lease[1] and old["token"] not in (None, new["token"])
            if ended and step.what != "reaper":
                del self._rated[lease]
        row = self._db.execute("select next_at from windlass_limits where name = 'rated'").fetchone()
        next_at = 0 if row is None else row["next_at"]
        if self._world.disturbed != self._rated_since:
            # Wall clocks jumped: from here on, what was spent is counted again.
            self._rated, self._rated_since, self._spent = {}, self._world.disturbed, next_at
        earliest = self._spent
        for at in sorted(self._rated.values()):
            earliest = max(earliest, at - interval) + interval
        if next_at > max(now, earliest + interval // 2):
            late = (next_at - max(now, earliest)) / 1e6
            self.fail("rates", f"rated jobs wait {late:.1f} s longer than those that started have taken")

    def _check_lost_claims(self) -> None:
        """What a worker claimed without hearing of it, it gives back before it claims again."""
        claim = "hot.claim_once"
        unsure = {each.fleet_id: each for each in self._world.workers if each.unheard}
        for job in self.rows.values():
            if job["state"] == "processing" and (worker := unsure.get(job["worker"])):
                claimed = self._claimed(job["id"], job["claims"])
                if (claim, claimed) in worker.unheard and worker.heard.get(claim, 0) > claimed:
                    self.fail("leases", f"{worker.name} never heard of its lease on job {job['id']}")

    def _check_fleet(self) -> None:
        """A worker that beats is not declared dead."""
        now = self._world.clock.monotonic()
        for row in self._db.execute("select id, state, beat from windlass_workers"):
            key = f"{row['id']} {row['beat']}"
            since = self._beats.setdefault(key, now)
            old, self._workers[row["id"]] = self._workers.get(row["id"]), row["state"]
            if row["state"] == "dead" and old not in (None, "dead") and now - since < _SILENT_SECONDS:
                self.fail("living", f"{row['id']} beat {now - since:.1f} s ago and was declared dead")

    def _check_recovery(self) -> None:
        """In calm, the jobs of a worker that is gone come back soon."""
        now, alive = self._world.clock.monotonic(), {each.fleet_id for each in self._world.workers}
        held = {job["token"]: job for job in self.rows.values() if job["state"] == "processing"}
        watched = any(each.watches for each in self._world.workers)
        self._stranded = {
            token: self._stranded.get(token, now)
            for token, job in held.items()
            if job["worker"] not in alive and watched
        }
        for token, since in self._stranded.items():
            if now - since > _RECOVERED_SECONDS:
                self.fail(
                    "recovery", f"job {held[token]['id']} is with {held[token]['worker']}, which is gone"
                )

    def _check_batches(self, before: dict[str, Job]) -> None:
        """A batch closes once, when all of its jobs have ended, and then enqueues its last job once."""
        by_batch: dict[str, list[Job]] = {}
        for job in self.jobs.values():
            if job["batch"] is not None:
                by_batch.setdefault(job["batch"], []).append(job)
        rows = self._db.execute("select id, then_id, finished_at from windlass_batches").fetchall()
        # One whose record has gone may be opened again under its id.
        self._finished = {row["id"]: self._finished.get(row["id"], 0) for row in rows}
        for row in rows:
            members = by_batch.get(row["id"], [])
            finished, then = row["finished_at"], row["then_id"]
            known = self._finished[row["id"]]
            if known not in (0, finished):
                self.fail("batches", f"batch {row['id']} was closed twice")
            self._finished[row["id"]] = finished or 0
            open_jobs = [job["id"] for job in members if job["state"] not in _ENDED]
            # In one step, an operation may end the last of them and another replay them.
            replayed = {job["id"] for job in members if job["replay_count"] > _replays(before, job)}
            if finished and not known and set(open_jobs) - replayed:
                self.fail("batches", f"batch {row['id']} was closed, and {open_jobs} have not ended")
            if finished and not known and then is not None and then not in self.jobs:
                self.fail("batches", f"batch {row['id']} was closed, and its last job is not there")
            if finished is None and then in self.jobs:
                self.fail("batches", f"batch {row['id']} is open, and its last job is there")
            if finished is None and members and not open_jobs:
                self.fail("batches", f"all jobs of batch {row['id']} have ended, and it is open")

    def _check_dependents(self) -> None:
        """A job that waits for others waits for exactly those, and is not due."""
        rows = self._db.execute(
            "select child_id, count(*) as many from windlass_dependencies group by child_id"
        )
        unmet = {row["child_id"]: row["many"] for row in rows}
        for job in self.rows.values():
            if job["waits_for"] and (job["due"] or job["state"] == "processing"):
                self.fail("dependents", f"job {job['id']} is due and waits for {job['waits_for']} jobs")
            if job["state"] == "pending" and job["waits_for"] != unmet.get(job["id"], 0):
                self.fail(
                    "dependents", f"job {job['id']} waits for {job['waits_for']} of {unmet.get(job['id'], 0)}"
                )

    def _check_schedules(self, step: Step) -> None:
        """One job for each fire time, none is passed over, and what a live release declares is there."""
        fires = self._db.execute("select * from windlass_fires where made_by is null").fetchall()
        times = Counter((row["schedule"], row["fire_at"]) for row in fires)
        if doubled := [time for time, count in times.items() if count > 1]:
            self.fail("schedules", f"{times[doubled[0]]} fires of {doubled[0][0]} at {doubled[0][1]}")
        before = self._schedules
        rows = {row["name"]: row for row in self._db.execute("select * from windlass_schedules")}
        self._schedules = {name: row["next_at"] for name, row in rows.items()}
        self._removed -= rows.keys()
        for name, passed in before.items():
            moved = name in rows and rows[name]["next_at"] != passed and passed is not None
            if moved and step.what == "scheduler" and not self._accounted(name, passed, fires):
                self.fail("schedules", f"{name} has passed over its fire time {passed}")
            if moved and step.what == "scheduler" and name == OLD_TICK and rows[name]["source"] == "code":
                self._check_wanted(rows[name])
        for worker in self._world.workers:
            if worker.has_published and worker.fleet_id in self._workers:
                self._check_declared(worker.release, rows)

    def _accounted(self, name: str, fire_at: int | None, fires: Sequence[sqlite3.Row]) -> bool:
        return fire_at is None or any(
            row["schedule"] == name and row["fire_at"] <= fire_at < (row["until_at"] or row["fire_at"] + 1)
            for row in fires
        )

    def _check_wanted(self, schedule: sqlite3.Row) -> None:
        """A schedule does not fire if workers are there, and none has had its function for a while."""
        since = self._world.clock.micros() - _ORPHANED_MICROS
        rows = self._db.execute("select types, state, beat_at from windlass_workers").fetchall()
        seen = [row for row in rows if row["beat_at"] >= since]
        alive = any(row["state"] in ("running", "draining") for row in seen)
        has = any(OLD_TICK in row["types"] for row in seen)
        if alive and not has and schedule["updated_at"] < since:
            self.fail("schedules", f"{OLD_TICK} fires, and no live worker has its function")

    def _check_declared(self, release: int, rows: dict[str, sqlite3.Row]) -> None:
        for name in SCHEDULED if release == 1 else (TICK, "report"):
            if name not in self._removed and (name not in rows or rows[name]["withdrawn"]):
                self.fail(
                    "schedules", f"{name} is declared by a worker of release {release}, and is not there"
                )

    def _check_runs(self, step: Step) -> None:
        """A handler runs once for each claim, as often as allowed, and no job runs that has ended."""
        started, self._world.started = self._world.started, []
        for _, job_id, attempt, fence in started:
            if (job_id, fence) in self._begun:
                self.fail("claims", f"job {job_id} ran twice under one lease: {step}")
            self._begun.add((job_id, fence))
            job = self.jobs.get(job_id)
            if job is not None and attempt > job["max_attempts"]:
                self.fail("attempts", f"job {job_id} began attempt {attempt} of {job['max_attempts']}")
            if job is not None:
                self._check_starts(job)
            if job is not None and job["replay_count"]:
                # By one action for many jobs, perhaps.
                continue
            if self._stopped.get(job_id, self._world.steps) < self._claimed(job_id, fence):
                self.fail(
                    "stopped", f"job {job_id} was stopped at step {self._stopped[job_id]} and runs again"
                )
            missing = self._parents.get(job_id, set()) - self._once_ended
            if missing:
                self.fail(
                    "dependents", f"job {job_id} runs, and its parents {sorted(missing)} have not ended"
                )
        twice = [job for job, count in self._world.effects.items() if count > 1]
        if twice:
            self.fail("once", f"the side effect of job {twice[0]} happened twice")

    def _check_starts(self, job: Job) -> None:
        """Only snoozes and the first interruptions are not counted."""
        self._starts[job["id"], job["replay_count"]] += 1
        starts = self._starts[job["id"], job["replay_count"]]
        if starts > job["max_attempts"] + job["snoozes"] + min(job["interruptions"], _FREE_INTERRUPTIONS):
            self.fail("attempts", f"job {job['id']} began {starts} times: {job}")

    def _claimed(self, job_id: str, fence: int) -> int:
        """The step after which a lease of the job was first seen."""
        return self._fences.setdefault((job_id, fence), self._world.steps)

    def _check_effects(self) -> None:
        """What a handler writes in its transaction is there once, and only if the job is completed."""
        effects = Counter(row["job"] for row in self._db.execute("select job from effects"))
        for job, count in effects.items():
            state = self.jobs[job]["state"] if job in self.jobs else "completed"
            if count > 1 or state != "completed":
                self.fail("transactions", f"{count} effects of job {job}, which is {state}")

    def _check_whole(self) -> None:
        """The file, the records of attempts, the counts, the migrations: what changes little by little."""
        if problems := self._world.operator.store.check():
            self.fail("store", "; ".join(problems))
        for problem in (*self._wrong_records(), *self._wrong_counts()):
            self.fail("records", problem)
        numbers = [
            row["number"] for row in self._db.execute("select number from windlass_schema order by number")
        ]
        if numbers != list(range(1, len(numbers) + 1)):
            self.fail("migrations", f"applied are {numbers}")

    def _wrong_records(self) -> Iterator[str]:
        """Each attempt that counted has a record."""
        rows = self._db.execute(
            "select id, state, attempts, history from windlass_jobs where state = 'dead'"
            " union all select id, state, attempts, history from windlass_archive where state = 'completed'"
        )
        for row in rows:
            kept = len(json.loads(row["history"] or "[]"))
            if kept < row["attempts"]:
                yield f"job {row['id']} is {row['state']}, {kept} of {row['attempts']} attempts are recorded"

    def _wrong_counts(self) -> Iterator[str]:
        """Nothing is counted twice."""
        ended = self._db.execute(
            "select sum(value) from windlass_history where step = 'ever' and name = 'completed'"
        ).fetchone()[0]
        if (ended or 0) > len(self._completed) + self._unstorable.total():
            yield f"{ended} completions were counted, and {len(self._completed)} jobs were completed"

    # --- the end ---

    def unfinished(self) -> list[str]:
        """What has not ended, but for jobs below a dead parent (an operator decides) or a scheduled one."""
        live = [job for job in self.rows.values() if job["state"] != "dead" and job["type"] not in SCHEDULED]
        running = self._db.execute("select id from windlass_operations where state = 'running'").fetchall()
        waits = self._db.execute("select parent_id, child_id from windlass_dependencies").fetchall()
        # Schedules go on for ever, and of one that only an old release knows the jobs wait for that release.
        scheduled = {job["id"] for job in self.rows.values() if job["type"] in SCHEDULED}
        blocked = scheduled.union(self.in_state.get("dead", ()))
        while more := {child for parent, child in waits if parent in blocked} - blocked:
            blocked |= more
        left = [f"{job['id']} is {job['state']}" for job in live if job["id"] not in blocked]
        return left + [f"operation {row['id']} runs" for row in running]


def _replays(before: dict[str, Job], job: Job) -> int:
    """How often a job had been replayed before this step."""
    return int(before[job["id"]]["replay_count"]) if job["id"] in before else 0
