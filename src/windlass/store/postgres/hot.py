"""The hot path on PostgreSQL: enqueue thousands in a statement, and settle hundreds at a time."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import Any

import msgspec

from windlass.checks import check_moment
from windlass.clock import END_OF_TIME, SystemClock, from_micros, span, to_micros
from windlass.errors import KeyConflict, LeaseLost, Refused, StoreBusy, must_be
from windlass.job import Job, JobState, Lease, NewJob, Request
from windlass.store import chains, keys, limits, oncall, rows
from windlass.store.engine import Enqueued, Settlement, Unstorable
from windlass.store.keys import existing, found, of_batch
from windlass.store.postgres.connections import CHANNEL
from windlass.store.postgres.session import NOTHING, PostgresTx, numbers, texts, words
from windlass.store.rows import Kind, Write

_MOST = 100_000


class Unanswered(dict[str, None]):
    """Ids of enqueues that got no answer. Sent again, they may have been written, and may even have ended.

    Only of this process: the ids of another one's drafts are its own.
    """

    def note(self, jobs: Sequence[NewJob]) -> None:
        self.update(dict.fromkeys(new.id for new in jobs))
        for old in list(self)[: max(0, len(self) - _MOST)]:
            self.pop(old, None)

    def has(self, jobs: Sequence[NewJob]) -> bool:
        return any(new.id in self for new in jobs)


_TRIES = 5
_STRETCH = 2_000
_FEW = 10

_Key = tuple[str, str]


def may_be_first(jobs: Sequence[NewJob]) -> bool:
    """Whether a worker may be told of these before they are durable.

    It may even claim them: its claim then waits for the disk, and they stand there before it. But nobody else
    may be answered with them, so they have no keys; and it is only worth while for few.
    """
    if len(jobs) > _FEW:
        return False
    for new in jobs:  # noqa: SIM110 - no frame for each job
        if new.key is not None or new.run_at is not None or new.delay:
            return False
    return True


def flush(tx: PostgresTx) -> None:
    """Wait until all that was committed before is durable."""
    # Without a row nothing would be written, and nothing waited for.
    [_] = tx.rows("flush")


def enqueue_new(tx: PostgresTx, jobs: Sequence[NewJob], hint: str | None = None) -> list[Enqueued]:
    """Insert jobs whose keys and ids are new; the statement fails if one is not.

    With a hint, of jobs that may be first, whoever listens is told with the commit. Not durable before a
    flush, and nobody has to be told any more.
    """
    told = {"channel": CHANNEL if hint else None, "hint": hint, "now": tx.given}
    if len(jobs) > _STRETCH and all(new.key is None for new in jobs):
        # All in one transaction; while the server inserts one stretch, the next is written down here.
        with tx.pipeline(), tx.part():
            for start in range(0, len(jobs), _STRETCH):
                tx.change("enqueue_new", **told, **_columns(jobs[start : start + _STRETCH]))
    elif (columns := _columns(jobs))["key"] == NOTHING:
        tx.change("enqueue_new", **told, **columns)
    else:
        tx.change("enqueue_keyed", now=tx.given, **columns)
    done = []
    for new in jobs:
        # Whether a time that was named has come is the server's to say; its next look finds out.
        due = hint is None and new.run_at is None and not new.delay
        done.append(Enqueued(new.id, new.key, created=True, due=due))
    return done


def enqueue(tx: PostgresTx, jobs: Sequence[NewJob], *, repeated: bool = False) -> list[Enqueued]:
    """The same within a transaction, with a closer look at what is known already.

    `repeated`: the very same call may have been written before, so ids of our own may have ended, too.
    """
    if any(new.unique is not None for new in jobs):
        return keys.enqueue_unique(tx, jobs, lambda _, plain: enqueue(tx, plain, repeated=repeated))
    answers = _by_key(tx, jobs)
    fresh = _first_of_each(jobs, answers)
    inserted = {row["id"] for row in tx.rows("enqueue_missing", now=tx.given, **_columns(fresh))}
    doubtful = [new.id for new in fresh if new.id in inserted and (new.own_id or repeated)]
    ended = _ended(tx, doubtful) if doubtful else {}
    for job_id in ended:
        tx.change("remove_new", id=job_id)
    known = _jobs(tx, [new.id for new in fresh if new.id not in inserted]) | ended
    if known or len(fresh) < len(jobs):
        # Known is not yet safe: what is answered with must be on the replica as well, and what we ourselves
        # wrote before may not even be on the disk.
        if repeated:
            flush(tx)
        else:
            tx.rows("confirm")
    for new in fresh:
        made = new.id in inserted and new.id not in known
        with of_batch(jobs, new):
            if not made:
                answers[id(new)] = existing(new, known.get(new.id))
            elif new.depends_on:
                answers[id(new)] = chains.attach(tx, new)
            else:
                due = new.run_at is None and not new.delay
                answers[id(new)] = Enqueued(new.id, new.key, created=True, due=due)
    return _in_order(jobs, answers, {_name(new): new for new in fresh})


def _first_of_each(jobs: Sequence[NewJob], answered: Mapping[int, Enqueued]) -> list[NewJob]:
    """Each id or key that is new once; a key that stands twice must stand for the same work."""
    first: dict[object, NewJob] = {}
    for new in jobs:
        if id(new) in answered:
            continue
        twin = first.setdefault(_name(new), new)
        if new.key is not None and twin.digest() != new.digest() and not new.take_existing:
            with of_batch(jobs, new):
                raise KeyConflict(new.key, twin.id)
    return list(first.values())


def _in_order(
    jobs: Sequence[NewJob], answers: dict[int, Enqueued], first: dict[object, NewJob]
) -> list[Enqueued]:
    """The answers to a batch; what stands in it twice was made once."""
    told: set[int] = set()
    answered: list[Enqueued] = []
    for new in jobs:
        answer = answers.get(id(new))
        if answer is None or (answer.created and id(new) in told):
            twin = first[_name(new)]
            with of_batch(jobs, new):
                answer = existing(new, twin) if new.key is None else found(twin)
        told.add(id(new))
        answered.append(answer)
    return answered


def _name(new: NewJob) -> object:
    return new.id if new.key is None else (new.scope, new.key)


# --- keys ---------------------------------------------------------------------------------------


def _by_key(tx: PostgresTx, jobs: Sequence[NewJob]) -> dict[int, Enqueued]:
    """Take the keys of a batch, or answer with the jobs that have them, by the rules of `keys.py`."""
    wanted: dict[_Key, NewJob] = {}
    for new in jobs:
        if new.key is not None:
            wanted.setdefault((new.scope, new.key), new)
    of_tenants = {place: new for place, new in wanted.items() if new.tenant}
    held = _take(tx, of_tenants, 1)
    held |= _held_before(tx, {place: new for place, new in of_tenants.items() if place not in held})
    held |= _take(tx, {place: new for place, new in wanted.items() if not new.tenant}, 0)
    answers: dict[int, Enqueued] = {}
    for new in jobs:
        holder = None if new.key is None else held.get((new.scope, new.key))
        if holder is not None:
            with of_batch(jobs, new):
                answers[id(new)] = found(keys.checked(new, holder))
    return answers


def _held_before(tx: PostgresTx, taken: dict[_Key, NewJob]) -> dict[_Key, keys.Holder]:
    """Keys of tenants that were taken just now, though a job has them from the release before."""
    shared: dict[_Key, NewJob] = {}
    for (_, key), new in taken.items():
        shared.setdefault((new.caller, key), new)
    holders = _take(tx, shared, 0)
    before: dict[_Key, keys.Holder] = {}
    for (scope, key), new in taken.items():
        holder = holders.get((new.caller, key))
        if holder is not None and holder.job.tenant == new.tenant:
            keys.belongs_to(tx, new, new.id, holder)
            before[scope, key] = holder
    return before


def _take(tx: PostgresTx, wanted: dict[_Key, NewJob], answered: int) -> dict[_Key, keys.Holder]:
    """Take keys, each within the scope that it stands under; those that other jobs have."""
    holders: dict[_Key, keys.Holder] = {}
    for _ in range(_TRIES):
        wanted = _refused(tx, wanted, answered)
        for place, holder in _holders(tx, wanted).items() if wanted else ():
            new = wanted[place]
            if new.tenant or not holder.job.tenant:
                holders[place] = holder
                del wanted[place]
            elif keys.taken_over(tx, new, holder, job_id=new.id, answered=answered):
                del wanted[place]
        if not wanted:
            return holders
        # A key whose holder is gone by now is free: it is tried again.
    [(_, key), *_] = wanted
    raise KeyConflict(key, "unknown")


def _refused(tx: PostgresTx, wanted: dict[_Key, NewJob], answered: int) -> dict[_Key, NewJob]:
    if not wanted:
        return {}
    taken = tx.rows(
        "take_keys",
        scopes=texts(scope for scope, _ in wanted),
        keys=texts(key for _, key in wanted),
        ids=words(new.id for new in wanted.values()),
        digests=words(new.digest() for new in wanted.values()),
        answered=answered,
    )
    ours = {(row["scope"], row["key"]) for row in taken}
    return {key: new for key, new in wanted.items() if key not in ours}


def free_keys(tx: PostgresTx, held: Iterable[tuple[str, str, str]]) -> None:
    """Free keys, each with its scope and its job."""
    scopes, names, ids = zip(*held, strict=True)
    tx.change("free_keys", scopes=texts(scopes), keys=texts(names), ids=words(ids))


def _holders(tx: PostgresTx, wanted: Iterable[_Key]) -> dict[_Key, keys.Holder]:
    places = list(wanted)
    scopes, names = texts(scope for scope, _ in places), texts(key for _, key in places)
    held = tx.rows("key_holders", scopes=scopes, keys=names)
    jobs = _jobs(tx, [row["job_id"] for row in held])
    left = [row for row in held if row["job_id"] not in jobs]
    if left:
        # The record is gone and its key was left behind.
        free_keys(tx, [(row["scope"], row["key"], row["job_id"]) for row in left])
    return {
        (row["scope"], row["key"]): keys.Holder(jobs[row["job_id"]], row["digest"])
        for row in held
        if row["job_id"] in jobs
    }


def _jobs(tx: PostgresTx, ids: Sequence[str]) -> dict[str, Job]:
    """Jobs by id. First the live ones: a job only ever moves from there to the archive."""
    if not ids:
        return {}
    found = {row["id"]: rows.read(Job, row) for row in tx.rows("by_ids", ids=words(ids))}
    return _ended(tx, [job_id for job_id in ids if job_id not in found]) | found


def _ended(tx: PostgresTx, ids: Sequence[str]) -> dict[str, Job]:
    return {row["id"]: rows.read(Job, row) for row in tx.rows("by_ids_ended", ids=words(ids))}


def _columns(jobs: Sequence[NewJob]) -> dict[str, Any]:
    values = zip(*map(rows.new_values, jobs), strict=True) if jobs else [()] * len(rows.NEW)
    columns: dict[str, Any] = {}
    for (name, kind), each in zip(rows.NEW.items(), values, strict=True):
        columns[name] = _SPELLED[kind](each)
    delays, ats, digests, scopes = [], [], [], []
    for new in jobs:
        delays.append(None if new.delay is None else _delay(new.delay))
        ats.append(None if new.run_at is None else to_micros(check_moment("at", new.run_at)))
        digests.append(None if new.key is None else new.digest())
        scopes.append(None if new.key is None else new.scope)
    more = {"delay": numbers(delays), "at": numbers(ats), "digest": words(digests), "scope": texts(scopes)}
    return columns | more


# How a column's values are written, by its type.
_SPELLED: dict[str, Callable[[Iterable[Any]], str]] = {
    "uuid": words,
    "text": texts,
    "json": texts,
    "smallint": numbers,
    "integer": numbers,
}


def _delay(delay: timedelta) -> int:
    wait = span(delay)
    if SystemClock().micros() + wait >= END_OF_TIME:
        raise must_be("delay", delay, "within the calendar, which ends with the year 9999")
    return wait


# What cannot be stored, and jobs to be enqueued with a completion that stand against what exists.
_REFUSED = (Unstorable, UnicodeError, msgspec.MsgspecError, Refused)
# Stands in a history where the server puts its own time; known by the name before it, as messages may say it.
_NOW = datetime(1, 1, 1, tzinfo=UTC)
_SETTLE_TRIES = 200
_PAUSE_SECONDS = 0.01


def settle(tx: PostgresTx, settlements: Sequence[Settlement]) -> list[Lease]:
    """Record outcomes; answers the leases that were lost (one settled before is not lost).

    One that cannot be stored fails alone: its job goes to the dead letters, and says why.
    """
    for each in settlements:
        if each.held:
            tx.change("hold_permits", seq=each.lease.job.seq, token=each.lease.token)
    settling = _Settling(tx)
    pending = settlements
    for tried in range(_SETTLE_TRIES):
        pending = settling.round(pending)
        if not pending:
            lost = settling.lost
            return [each.lease for each in settlements if each.lease.token in lost] if lost else []
        if tried:
            threading.Event().wait(_PAUSE_SECONDS)
    raise StoreBusy(f"{len(pending)} running jobs are locked by somebody else's transaction; try again")


def complete(tx: PostgresTx, settlement: Settlement) -> None:
    """Record a completion and what is enqueued with it, within a transaction; LeaseLost without the lease."""
    if settlement.lease.token not in _write(tx, [settlement], linked=True):
        raise LeaseLost(settlement.lease.id)


class _Settling(msgspec.Struct):
    """One call of `settle`, which goes in rounds: what is not written in one is left for the next."""

    tx: PostgresTx
    # By their tokens.
    lost: set[str] = msgspec.field(default_factory=set)
    # Others wait for the job, or it is one of a batch: it ends in one transaction with what follows.
    linked: set[str] = msgspec.field(default_factory=set)

    def round(self, pending: Sequence[Settlement]) -> list[Settlement]:
        """Write what can be written; what is left stands against a request, or is locked at this moment."""
        left: list[Settlement] = []
        plain: list[Settlement] = []
        linked: list[Settlement] = []
        for each in pending:
            if each.enqueues or each.check_in is not None:
                # Jobs or a check of its own: never one without the other.
                left += self._attempt([each], linked=True)
            elif self.linked and each.lease.token in self.linked:
                linked.append(each)
            else:
                plain.append(each)
        if plain:
            left += self._attempt(plain, linked=False)
        return left + self._attempt(linked, linked=True) if linked else left

    def _attempt(self, group: Sequence[Settlement], *, linked: bool) -> list[Settlement]:
        try:
            # A token comes back with its job or not at all: an answer lost between the two is repeated.
            whole = linked or any(map(attrgetter("tokens"), group))
            with self.tx.part() if whole else contextlib.nullcontext():
                answered = _write(self.tx, group, linked=linked)
        except _REFUSED as refused:
            # One that cannot be stored must not hold up the others.
            if len(group) > 1:
                return [left for each in group for left in self._attempt([each], linked=linked)]
            stripped = rows.storable_settlement(group[0], refused)
            if stripped == group[0]:
                raise
            return [stripped]
        if len(answered) == len(group) and not any(answered.values()):
            return []
        left: list[Settlement] = []
        unknown: list[Settlement] = []
        for each in group:
            if each.lease.token not in answered:
                unknown.append(each)
            elif (request := answered[each.lease.token]) is not None:
                outcome = rows.carried_out(each.outcome, Request(request))
                left.append(msgspec.structs.replace(each, outcome=outcome))
        return left + self._locked(unknown) if unknown else left

    def _locked(self, unknown: Sequence[Settlement]) -> list[Settlement]:
        """Not found: settled before (a repeat after a lost answer), lost, or locked, then tried again."""
        found = self.tx.rows("settled_already", **fence([each.lease for each in unknown]))
        held = {row["token"]: row["held"] for row in found}
        self.lost |= {each.lease.token for each in unknown if each.lease.token not in held}
        self.linked |= {row["token"] for row in found if row["marked"]}
        return [each for each in unknown if held.get(each.lease.token)]


def _write(tx: PostgresTx, group: Sequence[Settlement], *, linked: bool) -> dict[str, str | None]:
    """One statement a kind; the tokens that were found, each with the request that was in its way."""
    kinds: dict[Kind, tuple[list[Lease], list[Write]]] = {}
    moment = _NOW if tx.given is None else from_micros(tx.given)
    for each in group:
        write = rows.written(each.lease, each.outcome, each.ran, moment, each.app)
        leases, writes = kinds.setdefault(write.kind, ([], []))
        leases.append(each.lease)
        writes.append(write)
    found: dict[str, str | None] = {}
    ended: list[chains.Ended] = []
    for kind, (leases, writes) in kinds.items():
        values: dict[str, Any] = fence(leases)
        for name, (spell, get) in _COLUMNS[kind].items():
            values[name] = spell(map(get, writes))
        # A job that goes on has no end that others wait for.
        more = {"latest": END_OF_TIME} if kind in _GOES_ON else {"marked": linked}
        changed = tx.rows(f"settle_{kind.value}", now=tx.given, **values, **more)
        for row in changed:
            found[row["token"]] = row["request"]
        if linked and kind not in _GOES_ON:
            of = {lease.token: (lease.id, write.state) for lease, write in zip(leases, writes, strict=True)}
            for row in changed:
                job_id, state = of[row["token"]]
                ended.append(chains.Ended(job_id, JobState(state or JobState.DEAD), row))
    if ended:
        chains.all_ended(tx, ended, tx.enqueue)
    if linked or any(map(attrgetter("tokens"), group)):
        _follow_up(tx, [each for each in group if found.get(each.lease.token, "") is None])
    return found


def _follow_up(tx: PostgresTx, settled: Sequence[Settlement]) -> None:
    limits.return_tokens(tx, (token for each in settled for token in each.tokens))
    for each in settled:
        if each.enqueues:
            tx.enqueue(each.enqueues)
        if each.check_in is not None:
            oncall.add_check(tx, each.lease.id, each.lease.job.type, each.check_in)


def fence(leases: Sequence[Lease]) -> dict[str, str]:
    """The numbers and tokens of leases, as every write about running jobs takes them."""
    return {
        "seqs": numbers(map(attrgetter("job.seq"), leases)),
        "tokens": words(map(attrgetter("token"), leases)),
    }


def _wait(write: Write) -> int:
    return min(span(write.delay), END_OF_TIME)


# What each kind of write brings, by the parameters of its statement: how it is spelled, where it is from.
_Column = tuple[Any, Any]
_TOKEN: dict[str, _Column] = {"last_tokens": (words, attrgetter("last_token"))}
_ERROR: dict[str, _Column] = _TOKEN | {
    "reasons": (texts, attrgetter("reason")),
    "errors": (texts, attrgetter("error")),
    "histories": (texts, attrgetter("history")),
}
_COLUMNS: dict[Kind, dict[str, _Column]] = {
    Kind.FINISH: _ERROR | {"states": (words, attrgetter("state")), "results": (texts, attrgetter("result"))},
    Kind.PUT_BACK: _ERROR
    | {
        "waits": (numbers, _wait),
        "given_backs": (numbers, attrgetter("given_back")),
        "snoozes": (numbers, attrgetter("snoozed")),
        "interruptions": (numbers, attrgetter("interrupted")),
        "losses": (numbers, attrgetter("lost")),
    },
    Kind.BURY: _ERROR | {"losses": (numbers, attrgetter("lost"))},
    Kind.LEAVE: _TOKEN
    | {
        "waits": (numbers, _wait),
        "readers": (texts, attrgetter("left.reader")),
        "fields": (texts, attrgetter("left.field")),
        "problems": (texts, attrgetter("left.problem")),
    },
}
_GOES_ON = (Kind.PUT_BACK, Kind.LEAVE)
