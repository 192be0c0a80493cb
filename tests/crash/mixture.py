"""What does a store look like that has been in use for a while? Jobs in every state, of every kind."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from datetime import timedelta

from windlass.clock import uuid7
from windlass.job import Error, JobState, Lease, NewJob, Reason, TypeInfo
from windlass.outcome import Again, Cancelled, Dead, Done, Outcome, Snoozed
from windlass.store.engine import Settlement, Want
from windlass.store.jobs import Filter
from windlass.store.store import Store

_BATCH = 5_000
_CLAIMED_AT_ONCE = 500
# What a text can hold that a copy may spoil.
_WORDS = (
    "plain",
    "tab\there",
    "line\nbreak",
    "back\\slash",
    r"\N",
    "quote\"'",
    "ümlaut ☃ 🪝",
    "\x0b\x08\x0c\r",
    "",
)
_BOOM = Error(Reason.EXCEPTION, "ValueError", "boom\twith \\ tab\nand ☃", 'Traceback:\n  File "a.py"\n')
# Of a hundred jobs, and what becomes of them.
_SHARES: dict[str, tuple[int, Sequence[Outcome]]] = {
    "mix.pending": (30, ()),
    "mix.scheduled": (10, ()),
    "mix.completed": (25, (Done(b'{"sent": "yes \\u2603"}'),)),
    "mix.retried": (8, (Again(timedelta(0), _BOOM), Done(b"[1, 2.50, null]"))),
    "mix.dead": (12, (Again(timedelta(0), _BOOM), Dead(_BOOM))),
    "mix.waiting": (5, (Again(timedelta(hours=2), _BOOM),)),
    "mix.snoozed": (2, (Snoozed(timedelta(hours=1)),)),
    "mix.cancelled": (4, (Cancelled(Error(Reason.CANCELLED, message="stopped")),)),
    "mix.discarded": (2, (Dead(_BOOM),)),
    "mix.running": (2, ()),
}


def fill(store: Store, count: int, *, seed: int = 1) -> None:
    """Put so many jobs into a store and let time have its way with them."""
    chance = random.Random(seed)
    store.register(
        [TypeInfo(name=name, schema_version=1, schema={"type": "object"}, options={}) for name in _SHARES]
    )
    store.set_setting("keep_ended", "9d")
    fates = [name for name, (share, _) in _SHARES.items() for _ in range(max(1, share * count // 100))]
    chance.shuffle(fates)
    jobs = (_job(name, number, chance) for number, name in enumerate(fates))
    while batch := list(itertools.islice(jobs, _BATCH)):
        store.enqueue(batch)
    for name, (_, outcomes) in _SHARES.items():
        for outcome in outcomes:
            _settle_all(store, name, outcome)
    _all_of(store, "mix.running")
    for job in _dead(store, "mix.discarded"):
        store.discard(job, by="ann", why="tab\tin a reason")


def _job(name: str, number: int, chance: random.Random) -> NewJob:
    word = chance.choice(_WORDS)
    escaped = word.encode("unicode_escape").decode().replace("\\", "\\\\").replace('"', '\\"')
    return NewJob(
        id=uuid7(),
        type=name,
        payload=f'{{"number": {number}, "word": "{escaped}", "raw": "ü☃", "price": 1.50}}'.encode(),
        priority=chance.randint(0, 10),
        key=f"key {number} {word}" if word.isprintable() and number % 3 == 0 else None,
        tenant=chance.choice(("", "ann", "bob", "çelik")),
        delay=timedelta(days=3) if name == "mix.scheduled" else None,
        max_attempts=chance.randint(2, 20),
    )


def _settle_all(store: Store, name: str, outcome: Outcome) -> None:
    for leases in _each(_all_of(store, name)):
        store.settle([Settlement(lease, outcome, timedelta(milliseconds=12)) for lease in leases])


def _all_of(store: Store, name: str) -> list[Lease]:
    """Claim every due job of a type."""
    found: list[Lease] = []
    want = Want(worker="gone", types={name: 1}, limit=_CLAIMED_AT_ONCE, lease=timedelta(seconds=60))
    while leases := store.claim(want).leases:
        found += leases
    return found


def _each(leases: Sequence[Lease]) -> Iterator[Sequence[Lease]]:
    for start in range(0, len(leases), _CLAIMED_AT_ONCE):
        yield leases[start : start + _CLAIMED_AT_ONCE]


def _dead(store: Store, name: str) -> Iterator[str]:
    where = Filter(types=(name,), states=(JobState.DEAD,))
    while jobs := store.find(where, limit=1000).jobs:
        yield from [job.id for job in jobs]
