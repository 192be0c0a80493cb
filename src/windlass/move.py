"""Move the jobs of one store to another, each exactly once, whatever happens meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING
from uuid import uuid4

import msgspec

from windlass.clock import SystemClock
from windlass.errors import Refused, StoreError, StoreMoved
from windlass.ops import Ops
from windlass.ops.words import count
from windlass.store.fleet import WorkerInfo
from windlass.store.moving import TABLES, Batch, Mark, Place, State, Sum, add_up

if TYPE_CHECKING:
    from windlass.connect import Source, Target

_BETWEEN_LOOKS = 0.2
_MOST_NAMED = 3


class Running(StrEnum):
    """What to do while workers are alive."""

    REFUSE = "refuse"
    # Ask them to finish what runs and exit, and wait for that.
    DRAIN = "drain"
    # Do not wait. What they run they can no longer settle: it runs again in the target.
    LEAVE = "leave"


def check(fleet: Ops, running: Running) -> None:
    """Refuse to go on while workers are alive, unless it was said what to do about them."""
    alive = _alive(fleet)
    if alive and running is Running.REFUSE:
        named = ", ".join(f"{worker.host} pid {worker.pid}" for worker in alive[:_MOST_NAMED])
        more = f" and {len(alive) - _MOST_NAMED} more" if len(alive) > _MOST_NAMED else ""
        raise Refused(
            f"workers are alive on this store ({named}{more}): stop them with `windlass worker stop`, or "
            "--drain lets them finish what runs, or --force moves now and runs those jobs again"
        )


def wait(fleet: Ops, running: Running, say: Callable[[str], None]) -> None:
    """Come back when no worker is alive, or at once if nobody should be waited for."""
    check(fleet, running)
    told = None
    while running is Running.DRAIN and (alive := _alive(fleet)):
        for worker in alive:
            if not worker.drain:
                fleet.store.drain(worker.id)
        busy = sum(worker.busy for worker in alive)
        words = f"waiting for workers: {len(alive)} alive, {count(busy, 'job')} running"
        if words != told:
            say(words)
        told = words
        threading.Event().wait(_BETWEEN_LOOKS)


def _alive(fleet: Ops) -> list[WorkerInfo]:
    return [worker.info for worker in fleet.workers() if worker.alive]


_BATCH = 5_000


class Step(msgspec.Struct, frozen=True):
    """How far it is: so many rows of so many. A step that only waits has words instead."""

    name: str
    done: int = 0
    total: int = 0


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """A move that is over."""

    move: str
    source: str
    target: str
    # Rows that this run has copied; a run before it may have begun.
    copied: int
    # What was found alike in both stores, by table; empty if a run before this one did so.
    tables: dict[str, Sum]


def move(
    source: Source,
    target: Target,
    fleet: Ops,
    *,
    running: Running = Running.REFUSE,
    step: Callable[[Step], None] = lambda _: None,
    batch: int = _BATCH,
) -> Moved:
    """Move everything from a store to another, or go on with what was begun."""
    # Before the source's mark, see _clear.
    there = target.mark()
    mark = _marked(source, target, there) or _begin(source, target, there, fleet, running)
    if mark.state is State.CLOSING:
        wait(fleet, running, lambda words: step(Step(words)))
        source.change(mark.id, State.CLOSING, State.CLOSED)
    copied, tables = 0, {}
    if mark.state is not State.MOVED:
        copied = _copy(source, target, mark, step, batch)
        target.finish(source.highest())
        tables = _compare(source, target, step, batch)
        # From here on the jobs are the target's. Whatever happens next, nobody takes this back.
        source.change(mark.id, State.CLOSED, State.MOVED)
    if _filling(target, mark) is not None:
        target.open(mark.id)
    return Moved(move=mark.id, source=source.place, target=target.place, copied=copied, tables=tables)


def abort(source: Source, target: Target | None) -> None:
    """Take back a move that is not over: the source is opened again, and the target emptied if it is there.

    Without the target that is safe as well: it stays sealed, and no run can go on filling it.
    """
    # Before the source's mark, see _clear.
    there = None if target is None else target.mark()
    mark = source.mark()
    if mark is not None and mark.state is State.MOVED:
        raise StoreMoved(source.place, mark.place)
    if mark is None and _left(source, there) is None:
        raise Refused(f"{source.place} is not being moved")
    if mark is not None:
        source.take_back(mark.id)
    if target is not None:
        _clear(source, target, there, taken_back=mark)


def _marked(source: Source, target: Target, there: Mark | None) -> Mark | None:
    """The move that has begun, if one has; refused if it is another one."""
    mark = source.mark()
    if mark is None:
        return None
    if there is not None and there.id == mark.id:
        return mark
    if mark.state is State.MOVED:
        raise StoreMoved(source.place, mark.place)
    if mark.place != target.place:
        raise Refused(
            f"{source.place} is being moved to {mark.place}: go on with that, or --abort takes it back"
        )
    _seal(source, target, there, mark)
    return mark


def _begin(source: Source, target: Target, there: Mark | None, fleet: Ops, running: Running) -> Mark:
    """Seal both stores. The target first: if it cannot be filled, nobody was disturbed."""
    check(fleet, running)
    mark = Mark(id=str(uuid4()), state=State.CLOSING, place=target.place, began_at=SystemClock().micros())
    _seal(source, target, there, mark)
    source.begin(mark)
    try:
        # Seen again behind the seal, where no worker can join any more.
        check(fleet, running)
    except Refused:
        abort(source, target)
        raise
    return mark


def _seal(source: Source, target: Target, there: Mark | None, mark: Mark) -> None:
    """Make the target ready to be filled by this move only."""
    _clear(source, target, there)
    target.begin(msgspec.structs.replace(mark, state=State.FILLING, place=source.place))


def _clear(source: Source, target: Target, there: Mark | None, taken_back: Mark | None = None) -> None:
    """Clear what an earlier move has left in the target: begun, or taken back, in one of the stores only.

    `there` was read before the source's mark. If rows had been copied by then, that move had begun in the
    source; it is not there now, so it never comes to its end. If none had, it may only now begin in the
    source: then it is cleared unless it has copied rows since (proofs/Move.tla).
    """
    left = _left(source, there)
    if left is not None:
        over = taken_back is not None and taken_back.id == left.id
        target.clear(left.id, begun=over or bool(left.copied))


def _copy(source: Source, target: Target, mark: Mark, step: Callable[[Step], None], batch: int) -> int:
    there = _filling(target, mark)
    if there is None:
        raise Refused(f"{target.place} is being filled by somebody else by now: start the move again")
    total = sum(source.count(table) for table in TABLES)
    left = sum(source.count(table, there.copied.get(table)) for table in TABLES)
    copied = 0
    step(Step("copying", total - left, total))
    for table in TABLES:
        columns = source.columns(table)
        for part in _batches(source, table, there.copied, batch):
            there = target.fill(there, table, columns, part)
            copied += len(part.lines)
            step(Step("copying", total - left + copied, total))
    return copied


def _compare(source: Source, target: Target, step: Callable[[Step], None], batch: int) -> dict[str, Sum]:
    """Counts and checksums of every table, of both sides, which must be the same."""
    total, done, found = sum(source.count(table) for table in TABLES), 0, {}
    for table in TABLES:
        step(Step("checking", done, total))
        here = add_up(line for part in _batches(source, table, {}, batch) for line in part.lines)
        step(Step("checking", done + here.rows // 2, total))
        there = target.sum(table, source.columns(table))
        if here != there:
            raise StoreError(
                f"the copy of table {table} in {target.place} differs from {source.place}: "
                f"{count(there.rows, 'row')} ({there.checksum}) instead of {here.rows} ({here.checksum}); "
                "nothing was lost: --abort opens the source again"
            )
        done, found[table] = done + here.rows, here
    step(Step("checking", done, total))
    return found


def _batches(source: Source, table: str, copied: Mapping[str, Place], batch: int) -> Iterator[Batch]:
    after = copied.get(table)
    while (part := source.batch(table, after, batch)) is not None:
        yield part
        after = part.last


def _left(source: Source, there: Mark | None) -> Mark | None:
    """The target's mark, if a move from this source has left it there without coming to its end."""
    ours = there is not None and there.state is State.FILLING and there.place == source.place
    return there if ours else None


def _filling(target: Target, mark: Mark) -> Mark | None:
    """The target's mark, if this move is filling it."""
    there = target.mark()
    return there if there is not None and there.id == mark.id and there.state is State.FILLING else None
