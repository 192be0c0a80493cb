"""Which schedules the code of live releases declares, and whose definition holds.

A schedule exists while a live release declares it. If two live releases define it differently, the definition
that was seen first most recently holds, so that an old worker that restarts never puts its own back.
"""

from __future__ import annotations

import hashlib
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from windlass import settings
from windlass.clock import span
from windlass.schedule import NewSchedule
from windlass.store import fleet, upkeep

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from windlass.store.engine import Row, Tx
    from windlass.store.fleet import WorkerInfo


def digest_of(new: NewSchedule) -> str:
    """What tells two definitions of a schedule apart."""
    return hashlib.blake2b(msgspec.json.encode(new), digest_size=8).hexdigest()


_LIVING = ("running", "draining")
# Processes say each minute what they declare; one that says it again sooner than this writes nothing.
_STALE = timedelta(seconds=30)
# A process that has said it within this time may be there without a row in the fleet: `windlass scheduler`,
# or a worker that is starting.
_RECENT = timedelta(minutes=2)
# A worker can declare once more after its last beat.
_BEAT = timedelta(seconds=5)
# A definition that nobody has declared for this long is forgotten, and with it its place in the order.
_FORGOTTEN = timedelta(days=30)
_NAMED_AT_MOST = 3


class Fleet:
    """Which workers are there, which functions they have, and which schedules they declare."""

    def __init__(self, tx: Tx) -> None:
        self._tx = tx

    def serves(self, job_type: str) -> bool:
        """Whether a worker that was seen within `schedules.orphan_after` has this type."""
        return any(worker.serves(job_type) for worker in self._lately)

    def is_alive(self) -> bool:
        """Whether any worker is there."""
        return any(worker.state in _LIVING for worker in self._lately)

    def runs(self, job_type: str) -> bool:
        """Whether a worker that has this type is there."""
        return any(worker.serves(job_type) for worker in self._living)

    def declares(self, digest: str) -> bool:
        """Whether a worker that declares this definition is there."""
        return any(digest in (worker.declares or ()) for worker in self._living)

    def may_declare(self, job_type: str) -> bool:
        """Whether a worker of an older Windlass has this type: nobody knows what it declares."""
        return any(worker.declares is None and worker.serves(job_type) for worker in self._in_grace)

    def declaring(self, digests: Collection[str], job_type: str) -> list[str]:
        """The workers that beat and declare one of these definitions, or may do so, in words."""
        recent = self._seen_since(self._tx.now - span(_RECENT))
        found = [
            worker
            for worker in recent
            if worker.state in _LIVING
            and (
                worker.serves(job_type)
                if worker.declares is None
                else any(digest in worker.declares for digest in digests)
            )
        ]
        return [f"{worker.id} (release {worker.app})" if worker.app else worker.id for worker in found]

    def ended(self, entry: Entry) -> bool:
        """Whether the last process that declared this definition was a worker that has ended."""
        return any(
            row["state"] not in _LIVING
            and row["beat_at"] + span(_BEAT) >= entry.seen_at
            and entry.digest in (row["declares"] or "")
            for row in self._rows
        )

    @cached_property
    def orphaned_before(self) -> int:
        """What was not seen since then has no live worker; with `schedules.orphan_after none`, never."""
        grace = self._settings.orphan_after
        return 0 if grace is None else self._tx.now - span(grace)

    @cached_property
    def gone_before(self) -> int:
        """A release that was not seen since then is gone."""
        grace = self._settings.orphan_after
        return self._tx.now - span(self._settings.keep_schemas if grace is None else grace)

    @cached_property
    def _settings(self) -> settings.Settings:
        return settings.read(upkeep.settings(self._tx))

    @cached_property
    def _rows(self) -> Sequence[Row]:
        return self._tx.rows("workers")

    @cached_property
    def _lately(self) -> list[WorkerInfo]:
        return self._seen_since(self.orphaned_before)

    @cached_property
    def _in_grace(self) -> list[WorkerInfo]:
        return self._seen_since(self.gone_before)

    @cached_property
    def _living(self) -> list[WorkerInfo]:
        return [worker for worker in self._in_grace if worker.state in _LIVING]

    def _seen_since(self, moment: int) -> list[WorkerInfo]:
        return [fleet.worker_from(row) for row in self._rows if row["beat_at"] >= moment]


class Entry(NamedTuple):
    """A definition of a schedule. Of those that live releases declare, the greatest holds."""

    first_at: int
    digest: str
    name: str
    type: str
    definition: str
    seen_at: int

    @property
    def new(self) -> NewSchedule:
        """The schedule."""
        return _decode(self.definition)


class Declarations:
    """The definitions that code declares, or has declared."""

    def __init__(self, tx: Tx, fleet: Fleet) -> None:
        self._tx = tx
        self._fleet = fleet
        self._entries = {row["digest"]: Entry(**row) for row in tx.rows("declarations")}
        self._before = self._entries.copy()

    def holds(self) -> dict[str, Entry]:
        """By name, the newest definition that a live release declares."""
        return {each.name: each for each in sorted(filter(self._is_live, self._entries.values()))}

    def unsaid(self, schedules: Iterable[NewSchedule]) -> dict[str, NewSchedule]:
        """Which of these the store was not told lately, by digest."""
        fresh = self._tx.now - span(_STALE)
        by_digest = {digest_of(new): new for new in schedules}
        return {
            digest: new
            for digest, new in by_digest.items()
            if digest not in self._entries or self._entries[digest].seen_at < fresh
        }

    def say(self, schedules: Sequence[NewSchedule]) -> None:
        """Note that a process is there that declares these."""
        now = self._tx.now
        for digest, new in self.unsaid(schedules).items():
            definition = msgspec.json.encode(new).decode()
            self._tx.change(
                "note_declaration",
                name=new.name,
                digest=digest,
                type=new.type,
                definition=definition,
                now=now,
            )
            first_at = self._entries[digest].first_at if digest in self._entries else now
            self._entries[digest] = Entry(first_at, digest, new.name, new.type, definition, now)
        self._tx.change("forget_declarations", before=now - span(_FORGOTTEN))

    def take_over(self, types: Iterable[str], schedules: Iterable[NewSchedule]) -> None:
        """Where no other worker of a type is left, what starts now counts alone: no deploy is rolling."""
        ours = set(map(digest_of, schedules))
        idle = {name for name in types if not self._fleet.runs(name)}
        for each in list(self._entries.values()):
            if each.type in idle and each.digest not in ours and self._fleet.ended(each):
                self._tx.change("end_declaration", name=each.name, digest=each.digest)
                self._entries[each.digest] = each._replace(seen_at=0)

    def was_live(self, entry: Entry, moment: int) -> bool:
        """Whether a definition was declared at that moment, as far as was known before this transaction."""
        before = self._before.get(entry.digest)
        if before is None or before.first_at > moment:
            return False
        grace = self._tx.now - self._fleet.gone_before
        return self._fleet.declares(before.digest) or before.seen_at >= moment - grace

    def declared_by(self, name: str, job_type: str) -> str:
        """Which live processes declare a schedule, in words; empty if none does."""
        entries = [each for each in self._entries.values() if each.name == name]
        found = self._fleet.declaring([each.digest for each in entries], job_type)
        if found:
            more = len(found) - _NAMED_AT_MOST
            named = ", ".join(found[:_NAMED_AT_MOST]) + (f" and {more} more" if more > 0 else "")
            return f"by worker {named}" if len(found) == 1 else f"by workers {named}"
        seen_at = max((each.seen_at for each in entries if not self._fleet.ended(each)), default=0)
        ago = self._tx.now - seen_at
        return f"by a process that was seen {ago // 1_000_000} s ago" if ago < span(_RECENT) else ""

    def _is_live(self, entry: Entry) -> bool:
        return entry.seen_at >= self._fleet.gone_before or self._fleet.declares(entry.digest)


_decode = msgspec.json.Decoder(NewSchedule).decode
