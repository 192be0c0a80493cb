"""Who works here, who is alive, and what must a worker know each second?"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from windlass.clock import from_micros
from windlass.errors import WorkerNotFound
from windlass.job import Request
from windlass.store import rows
from windlass.store.fleet import Look, Vitals, WorkerInfo
from windlass.store.verbs import access, flow, scheduling, unread

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from windlass.store.transaction import Tx


def join(tx: Tx, worker: WorkerInfo) -> None:
    """Enter a worker's row."""
    tx.change(
        "join",
        id=worker.id,
        host=worker.host,
        boot=worker.boot,
        pid_space=worker.pid_space,
        pid=worker.pid,
        pid_started=worker.pid_started,
        version=worker.version,
        app=worker.app,
        types=rows.json_text(worker.types),
        slots=worker.slots,
        versions=rows.json_text(worker.versions),
        reader=worker.reader,
        pools=rows.json_text(worker.pools),
        declares=None if worker.declares is None else " ".join(worker.declares),
        now=tx.now,
    )


def beat(tx: Tx, worker: str, vitals: Vitals) -> bool:
    """Move the worker's beat; False if it must take a new id."""
    return bool(
        tx.change(
            "beat",
            id=worker,
            state=vitals.state,
            busy=vitals.busy,
            held=vitals.held,
            done=vitals.done,
            failed=vitals.failed,
            late=vitals.late,
            deaf=vitals.deaf,
            resident_bytes=vitals.resident_bytes,
            pools=rows.pools_text(vitals),
            now=tx.now,
        )
    )


def beat_waiting(tx: Tx, workers: Sequence[str]) -> set[str]:
    """Move the beats of workers that wait for jobs; those that are alive."""
    found = tx.rows("beat_waiting", ids=rows.json_text(workers), now=tx.now)
    return {row["id"] for row in found}


def leave(tx: Tx, worker: str) -> None:
    """Mark the worker as stopped."""
    tx.change("leave", id=worker, now=tx.now)


def declare_dead(tx: Tx, worker: str, beat: int) -> bool:
    """Mark a worker as dead if its beat still stands at `beat`."""
    return bool(tx.change("declare_dead", id=worker, beat=beat))


def drain(tx: Tx, worker: str, *, by: str = "", why: str = "") -> None:
    """Ask a worker to finish what runs and exit; a dead one is not missed any more.

    WorkerNotFound if there is none, or if it has stopped.
    """
    if not tx.change("drain", id=worker):
        raise WorkerNotFound(worker)
    access.note(tx, "drain", "worker", worker, by=by, why=why, after={"drain": True})


def workers(tx: Tx) -> list[WorkerInfo]:
    """Every worker, newest first."""
    return [rows.worker_from(row) for row in tx.rows("workers")]


def look(tx: Tx, worker: str, types: Mapping[str, int], reader: str = "") -> Look:
    """All that a worker must know each second."""
    return Look(
        now=from_micros(tx.now),
        workers=[rows.worker_from(row) for row in tx.rows("alive")],
        requests={row["token"]: Request(row["request"]) for row in tx.rows("requests", worker=worker)},
        expired=tx.row("any_expired", now=tx.now) is not None,
        orphaned=tx.row("any_orphan") is not None,
        claimable=claimable(tx, types),
        next_due=next_due(tx, types),
        next_fire=scheduling.next_fire(tx),
        revision=flow.revision(tx),
        unread=unread.any_for(tx, types, reader),
    )


def next_due(tx: Tx, types: Iterable[str]) -> timedelta | None:
    """How long until the next scheduled job of these types is due."""
    found = (tx.row("next_due", type=name) for name in types)
    moments = [row["run_at"] for row in found if row is not None]
    return timedelta(microseconds=max(0, min(moments) - tx.now)) if moments else None


def claimable(tx: Tx, types: Mapping[str, int]) -> bool:
    """Whether a claim for these types, up to these schema versions, would find anything."""
    return any(
        tx.row("any_due", type=name, version=version) is not None
        or tx.row("any_later", type=name, now=tx.now) is not None
        for name, version in types.items()
    )
