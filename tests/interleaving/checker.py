"""What must hold in every committed state. It reads the tables and the recorded calls, and nothing else."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import psycopg

from tests.interleaving.deeds import LEVELS, PASSING
from tests.interleaving.scenes import Facts
from tests.interleaving.turns import Actor, Call
from windlass.errors import (
    Conflict,
    JobNotFound,
    KeyConflict,
    LeaseLost,
    Refused,
    StoreBusy,
    StoreUnavailable,
    UniqueConflict,
    WrongState,
)
from windlass.outcome import Done
from windlass.testing.simulation.checker import Violation

ENDED = frozenset({"completed", "dead", "cancelled", "discarded"})
# From a state to another, as the table of states has it.
_MOVES = {
    "pending": {"processing", "dead", "cancelled"},
    "processing": {"pending", "dead", "cancelled", "completed"},
    "dead": {"pending", "discarded"},
}
_STATE = """
with jobs as (
    select id, type, tenant, caller, key, state, attempts, max_attempts, claims, replay_count, last_token,
           batch, changes, token, unique_name, unique_until, unique_claims, waits_for, due, limit_key,
           false as archived
      from windlass.jobs
     union all
    select id, type, tenant, caller, key, state, attempts, max_attempts, claims, replay_count, last_token,
           batch, changes, null, null, null, 0, 0, 0, null,
           true
      from windlass.archive
),
batches as (select id, total, then_id, finished_at from windlass.batches),
fires as (select schedule, fire_at, outcome from windlass.fires where made_by is null),
schedules as (select name, next_at, paused from windlass.schedules),
operations as (select id, state, reached from windlass.operations),
audit as (select who, verb, target from windlass.audit)
select (select json_agg(each) from jobs as each) as jobs,
       (select json_agg(each) from batches as each) as batches,
       (select json_agg(each) from windlass.dependencies as each) as dependencies,
       (select json_agg(each) from fires as each) as fires,
       (select json_agg(each) from schedules as each) as schedules,
       (select json_agg(each) from operations as each) as operations,
       (select json_agg(each) from audit as each) as audit,
       (select json_agg(job) from effects) as effects
"""
_NOTHING = ("jobs", "batches", "dependencies", "fires", "schedules", "operations", "audit", "effects")

_GONE = {"archived": True}


class Checker:
    """Holds every promise after each step that may have committed something."""

    def __init__(self, observer: psycopg.Connection[Any], facts: Facts, actors: Sequence[Actor]) -> None:
        self._observer = observer
        self._facts = facts
        self._actors = actors
        self.state: dict[str, list[Any]] = {name: [] for name in _NOTHING}
        self.jobs: dict[str, dict[str, Any]] = {}
        # Of a job and its claim, the token.
        self._tokens: dict[tuple[str, int], str] = {}
        self._judged: set[Call] = set()
        # Jobs that an operator has stopped, and by which call.
        self._stopped: dict[str, Call] = {}
        self._steered: dict[str, Call] = {}
        self._closed: dict[str, set[str]] = {}
        self._keys: dict[tuple[str, str, str], str] = {}
        self._marks: dict[str, frozenset[str]] = {}
        self._starts: Counter[str] = Counter()
        self._step = 0
        self.look(0)

    def fail(self, promise: str, detail: str) -> None:
        """A promise is broken; jobs are called by their names in the story."""
        for job, name in self._facts.names.items():
            detail = detail.replace(job, name)
        raise Violation(promise, detail)

    def look(self, step: int) -> None:
        """Hold everything, after a step."""
        self._step = step
        row = self._observer.execute(_STATE).fetchone()
        before, earlier = self.jobs, self.state
        self.state = {name: (row or {})[name] or [] for name in _NOTHING}
        self.jobs = {each["id"]: each for each in self.state["jobs"]}
        if len(self.jobs) < len(self.state["jobs"]):
            self.fail("lost", "a job is both live and archived")
        self._moves(before)
        self._bounds()
        self._names()
        self._batches()
        self._dependents()
        self._schedules(earlier)
        self._operations(earlier)
        for actor in self._actors:
            for call in actor.calls:
                self._call(call)
        self._stops()

    def look_at_end(self, step: int) -> None:
        """The same after a calm, in which jobs went through several states unseen."""
        self.jobs = {}
        self._facts.starts.clear()
        self.look(step)

    # --- states ---

    def _moves(self, before: dict[str, dict[str, Any]]) -> None:
        """States change along the table, claims are counted, and a running job is its holder's alone."""
        for job_id, old in before.items():
            new = self.jobs.get(job_id)
            if new is None:
                if job_id not in self._facts.old or old["state"] not in ENDED:
                    self.fail("lost", f"{job_id} was {old['state']} and is gone")
                continue
            if new["state"] != old["state"] and new["state"] not in _MOVES.get(old["state"], ()):
                self.fail("states", f"{job_id} went from {old['state']} to {new['state']}")
            if old["token"] is not None and new["token"] != old["token"]:
                self._fence(old, new)
            if not old["claims"] <= new["claims"] <= old["claims"] + 1:
                self.fail("claims", f"{job_id} was claimed {old['claims']}, then {new['claims']} times")
            self._starts[new["type"]] += new["claims"] - old["claims"]
        self._holders()

    def _holders(self) -> None:
        """A job that runs has one holder for each claim, and no more attempts than it may have."""
        for job in self.jobs.values():
            if job["attempts"] > job["max_attempts"]:
                self.fail("attempts", f"{job['id']}: {job['attempts']} of {job['max_attempts']}")
            if (job["state"] == "processing") is not (job["token"] is not None):
                self.fail("holder", f"{job['id']} is {job['state']} with token {job['token']}")
            if job["token"] is not None:
                self._hold(job["id"], job["claims"], job["token"])

    def _fence(self, old: dict[str, Any], new: dict[str, Any]) -> None:
        """Only a call that settles a lease takes the job from its holder."""
        settling = (call for actor in self._actors for call in actor.calls[-2:] if self._runs(call))
        if not any(old["token"] in call.tokens for call in settling):
            self.fail("fence", f"{old['id']} was taken from its holder and is {new['state']}")

    def _runs(self, call: Call) -> bool:
        return call.end is None or call.end >= self._step - 1

    def _hold(self, job: str, claims: int, token: str) -> None:
        if self._tokens.setdefault((job, claims), token) != token:
            self.fail("holder", f"claim {claims} of {job} has two holders")

    # --- bounds ---

    def _bounds(self) -> None:
        """Limits hold: at once, for a tenant, over all, and of starts under a rate."""
        held = [
            job for job in self.jobs.values() if job["token"] is not None and job["limit_key"] is not None
        ]
        types = Counter(job["type"] for job in held)
        tenants = Counter((job["type"], job["tenant"]) for job in held)
        facts = self._facts
        for name, most in facts.limits.items():
            if types[name] > most:
                self.fail("limits", f"{types[name]} {name} jobs run, {most} may")
        for (name, tenant), running in tenants.items():
            if running > facts.per_tenant.get(name, running):
                self.fail("limits", f"{running} {name} jobs of {tenant!r} run, {facts.per_tenant[name]} may")
        if facts.total is not None and len(held) > facts.total:
            self.fail("limits", f"{len(held)} limited jobs run, {facts.total} may")
        for name, most in facts.starts.items():
            if self._starts[name] > most:
                self.fail("rates", f"{self._starts[name]} {name} jobs started, {most} may")

    def _names(self) -> None:
        """A unique name has one job, and so has a key."""
        unique = Counter(
            (job["unique_name"], job["caller"], job["tenant"])
            for job in self.jobs.values()
            if job["unique_name"] is not None
            and job["state"] in ("pending", "processing")
            and (job["unique_until"] == "done" or job["claims"] == job["unique_claims"])
        )
        keys = Counter(
            (job["key"], job["caller"], job["tenant"])
            for job in self.jobs.values()
            if job["key"] is not None and job["id"] not in self._facts.old
        )
        for promise, counted in (("unique", unique), ("keys", keys)):
            for (name, *_), number in counted.items():
                if number > 1:
                    self.fail(promise, f"{number} jobs have the name {name}")

    # --- chains ---

    def _batches(self) -> None:
        """A batch closes once, when all of its jobs have ended, and then enqueues its last job."""
        for batch in self.state["batches"]:
            members = [job for job in self.jobs.values() if job["batch"] == batch["id"]]
            going = [job["id"] for job in members if job["state"] not in ENDED]
            closed = batch["finished_at"] is not None
            if closed and batch["id"] not in self._closed and going:
                self.fail("batches", f"the batch was closed, and {going} have not ended")
            if not closed and not going:
                self.fail("batches", "all jobs of the batch have ended, and it is open")
            if len(members) != batch["total"]:
                self.fail("batches", f"the batch has {len(members)} jobs and counts {batch['total']}")
            if batch["then_id"] is not None and closed is not (batch["then_id"] in self.jobs):
                self.fail("batches", f"the batch is {'closed' if closed else 'open'}, its last job is not")
            if not closed and batch["id"] in self._closed:
                self.fail("batches", "the batch was closed and is open")
            if closed:
                known = self._closed.setdefault(batch["id"], {job["id"] for job in members})
                if late := [job["id"] for job in members if job["id"] not in known]:
                    self.fail("batches", f"{late[0]} joined the batch after it was closed")

    def _dependents(self) -> None:
        """A job waits for as many others as have not ended, and no longer."""
        parents: defaultdict[str, int] = defaultdict(int)
        for each in self.state["dependencies"]:
            if self.jobs.get(each["child_id"], _GONE)["archived"]:
                # It was cancelled, or is gone: its rows go with its parents.
                continue
            parents[each["child_id"]] += 1
            parent = self.jobs.get(each["parent_id"])
            if parent is None:
                over = each["parent_id"] not in self._facts.old
            else:
                over = parent["state"] in ENDED - {"dead"} or (
                    parent["state"] == "dead" and each["policy"] != "wait"
                )
            if over:
                state = "gone" if parent is None else parent["state"]
                self.fail("dependents", f"{each['child_id']} waits for {each['parent_id']}, which is {state}")
        for job in self.jobs.values():
            if job["waits_for"] != parents[job["id"]]:
                self.fail(
                    "dependents", f"{job['id']} waits for {parents[job['id']]}, counts {job['waits_for']}"
                )
            if job["waits_for"] and (job["due"] or job["token"] is not None):
                self.fail("dependents", f"{job['id']} may run and waits for {job['waits_for']} jobs")

    # --- schedules and operations ---

    def _schedules(self, earlier: dict[str, list[Any]]) -> None:
        """Fire times are dealt with once, in their order, and not while a schedule is paused."""
        fires = Counter((each["schedule"], each["fire_at"]) for each in self.state["fires"])
        if fires and max(fires.values()) > 1:
            self.fail("schedules", "a fire time was dealt with twice")
        before = {each["name"]: each for each in earlier["schedules"]}
        fired = len(self.state["fires"]) - len(earlier["fires"])
        for each in self.state["schedules"]:
            old = before.get(each["name"], each)
            if each["next_at"] < old["next_at"]:
                self.fail("schedules", "a schedule went back to a fire time that was dealt with")
            if old["paused"] and each["paused"] and fired:
                self.fail("schedules", "a schedule fired while it was paused")

    def _operations(self, earlier: dict[str, list[Any]]) -> None:
        """An operation that has ended stays so, and acts on each job once."""
        before = {each["id"]: each["state"] for each in earlier["operations"]}
        for each in self.state["operations"]:
            old = before.get(each["id"], each["state"])
            if old not in ("running", "paused", each["state"]):
                self.fail("operations", f"the operation was {old} and is {each['state']}")
            if old == "paused" and each["state"] == "running" and not self._resumed(each["id"]):
                self.fail("operations", "the operation was paused, and runs although no one resumed it")
            acted = Counter(
                job["id"]
                for job in self.jobs.values()
                for one in _changes(job)
                if one["request_id"] == each["id"]
            )
            if acted and max(acted.values()) > 1:
                self.fail("operations", f"{max(acted, key=acted.__getitem__)} was acted on twice")
            reached = json.loads(each["reached"])
            if each["state"] == "done" and reached["done"] + reached["asked"] != len(acted):
                self.fail("operations", f"it counts {reached}, and acted on {len(acted)} jobs")

    def _resumed(self, operation: str) -> bool:
        return any(
            call.asked.get("operation") == operation and call.asked.get("state") == "running"
            for actor in self._actors
            for call in actor.calls
            if self._runs(call)
        )

    # --- calls ---

    def _call(self, call: Call) -> None:
        """What an answer promises, once it is given."""
        if call in self._judged or call.end is None:
            return
        self._judged.add(call)
        if call.error is not None:
            self._error(call, call.error)
        if not call.answered:
            return
        asked = call.asked
        if "drafts" in asked and call.answer:
            self._accepted(call)
        if call.verb == "claim":
            self._claimed(call)
        elif call.tokens and call.verb != "complete in a transaction":
            self._settled(call)
        elif call.tokens and call.answer not in self.state["effects"]:
            self.fail("effects", f"{call.answer} was completed without its effect")
        if "action" in asked:
            self._acted(call)
        if asked.get("state") == "paused" or asked.get("state") == "stopped":
            self._steered[asked["operation"]] = call

    def _accepted(self, call: Call) -> None:
        for draft, done in zip(call.asked["drafts"], call.answer, strict=True):
            if done.id not in self.jobs and done.id not in self._facts.old:
                self.fail("accepted", f"{done.id} was accepted and is not there")
            if done.created and done.id != draft.id:
                self.fail("accepted", f"{draft.id} was created as {done.id}")
            if draft.key is not None and done.id not in self._facts.old:
                place = (draft.key, draft.caller, draft.tenant)
                if self._keys.setdefault(place, done.id) != done.id:
                    self.fail("keys", f"{draft.key} was answered with {self._keys[place]} and {done.id}")

    def _claimed(self, call: Call) -> None:
        leases = call.answer.leases
        for lease in leases:
            if self._tokens.get((lease.id, lease.job.claims)) != lease.token:
                self.fail("holder", f"{lease.id} was handed out without a claim")
        mark = call.asked["want"].mark
        if mark is not None and leases:
            tokens = frozenset(lease.token for lease in leases)
            if self._marks.setdefault(mark, tokens) != tokens:
                self.fail("marks", "one request was answered with two claims")

    def _settled(self, call: Call) -> None:
        given, lost = call.answer
        for each in given:
            job = self.jobs.get(each.lease.id)
            if job is None or each.lease.token in lost:
                continue
            if job["token"] == each.lease.token:
                self.fail("settled", f"{each.lease.id} was settled and is still running")
            done = job["state"] == "completed" and job["last_token"] == each.lease.token
            if isinstance(each.outcome, Done) and not done:
                self.fail("settled", f"{each.lease.id} was completed and is {job['state']}")
        for job_id in call.asked.get("follow", ()):
            if given and given[0].enqueues and given[0].lease.token not in lost and job_id not in self.jobs:
                self.fail("accepted", f"{job_id} was enqueued by a completion and is not there")

    def _acted(self, call: Call) -> None:
        """An action that was answered took effect, and is in the audit log."""
        job, verb, acted = self.jobs.get(call.asked["job"]), call.asked["action"], call.answer
        if verb in ("cancel", "bury"):
            self._stopped[call.asked["job"]] = call
            wanted = "cancelled" if verb == "cancel" else "dead"
            followed = verb == "bury" and self._after(call, ("replay", "discard"))
            if acted.done and not followed and job is not None and job["state"] != wanted:
                self.fail("stopped", f"{job['id']} was answered as {wanted} and is {job['state']}")
        request = call.asked.get("request_id")
        if request and job is not None and job["replay_count"] > 1:
            self.fail("requests", f"{job['id']} was replayed twice for one request")
        entry = {"who": call.actor, "verb": verb, "target": call.asked["job"]}
        if not request and entry not in self.state["audit"]:
            self.fail("audit", f"no entry for {verb} of {call.asked['job']} by {call.actor}")

    def _after(self, call: Call, verbs: tuple[str, ...]) -> bool:
        """Whether another call may have undone what this one did."""
        return any(
            other.asked.get("action") in verbs and other.asked.get("job") == call.asked["job"]
            for actor in self._actors
            for other in actor.calls
        )

    def _stops(self) -> None:
        """What an operator has stopped does not wait for another run."""
        for job_id, call in self._stopped.items():
            job = self.jobs.get(job_id)
            if job is not None and job["state"] == "pending" and not self._after(call, ("replay",)):
                self.fail("stopped", f"{job_id} was stopped by {call.actor} and is pending")
        for operation, call in self._steered.items():
            state = next(each["state"] for each in self.state["operations"] if each["id"] == operation)
            wanted = call.asked["state"]
            if state == "running" and (wanted == "stopped" or not self._resumed_since(call)):
                self.fail("operations", f"the operation was {wanted} by {call.actor} and runs")

    def _resumed_since(self, call: Call) -> bool:
        return any(
            other.asked.get("state") == "running" and other.start >= call.start
            for actor in self._actors
            for other in actor.calls
        )

    def _error(self, call: Call, error: BaseException) -> None:
        """An error is one that the call's own rules allow, or follows from a fault."""
        asked, drafts = call.asked, call.asked.get("drafts") or call.asked.get("absent") or ()
        allowed: tuple[type[BaseException], ...] = ()
        if call.struck:
            allowed += (StoreUnavailable, psycopg.OperationalError, psycopg.InterfaceError)
        if "action" in asked:
            allowed += (WrongState, UniqueConflict) + ((JobNotFound,) if self._facts.old else ())
        if "operation" in asked:
            allowed += (Conflict,)
        if "level" in asked:
            # In a snapshot that is older than another's job, its name is not seen: the caller tries again.
            old = asked["level"] != LEVELS[0] and any(draft.unique for draft in drafts)
            allowed += PASSING + ((StoreBusy,) if old else ())
        if call.verb == "extend a batch":
            allowed += (Refused,)
        if call.verb == "complete in a transaction":
            allowed += (LeaseLost,)
        if any(draft.key in self._facts.clashing for draft in drafts):
            allowed += (KeyConflict,)
        if any(draft.unique is not None and draft.on_unique != "skip" for draft in drafts):
            allowed += (UniqueConflict,)
        if not isinstance(error, allowed):
            text = re.sub(r"postgresql://\S+ ?", "", str(error).partition("\n")[0])
            self.fail("answers", f"{call.actor}, {call.verb}: {type(error).__name__}: {text}")

    # --- the end ---

    def finish(self) -> None:
        """Nothing that was rolled back is there, and every call has come to its end."""
        for actor in self._actors:
            for call in actor.calls:
                unsure = call.struck or (call.answered and not call.asked.get("absent"))
                refused = [] if unsure else [*call.asked.get("absent", ()), *call.asked.get("drafts", ())]
                for draft in refused:
                    if draft.id in self.jobs:
                        self.fail("refused", f"{draft.id} was not accepted and is there")


def _changes(job: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"request_id": "", **each} for each in json.loads(job["changes"] or "[]")]
