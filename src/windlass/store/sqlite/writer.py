"""How do many threads write through one connection, with one commit for all who wait?

Whoever comes while nobody writes does so himself, on his own thread. Whoever comes meanwhile waits in a
queue, and the writer's thread then writes for all who wait, in one transaction and one commit.
"""

from __future__ import annotations

import copy
import logging
import os
import threading
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

from windlass.errors import StoreBusy, StoreError, StoreUnavailable, WindlassError
from windlass.store.sqlite import locks
from windlass.store.sqlite.connection import MEMORY, SqliteTx, explain
from windlass.store.sqlite.library import sqlite3

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from windlass.clock import Clock
    from windlass.store.sqlite.checkpoint import Checkpointer

T = TypeVar("T")
log = logging.getLogger("windlass.store")

_MOST_AT_ONCE = 256
# A caller that waits for itself is told so after this time rather than after its whole patience.
_OWN_LOCK_SECONDS = 5.0
# How often we look whether an outsider has let go of the write lock.
_OUTSIDER_SECONDS = 0.01
_GATHER_SECONDS = 0.0002


class _Operation:
    """One verb on its way through the writer."""

    __slots__ = ("args", "begun", "done", "error", "given_up", "result", "urgent", "verb")

    def __init__(self, verb: Callable[..., Any], args: tuple[Any, ...], *, urgent: bool) -> None:
        self.verb = verb
        self.args = args
        self.urgent = urgent
        self.result: Any = None
        self.error: BaseException | None = None
        self.begun = False
        self.given_up = False
        # Only whoever waits has one: a bare lock, the cheapest thing to wait on, is let go when it is done.
        self.done: threading.Lock | None = None


class Writer:
    """The one connection of this process that writes."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        path: str,
        *,
        statements: Mapping[str, str],
        clock: Clock,
        patience: float,
        checkpointer: Checkpointer | None,
    ) -> None:
        self._connection = connection
        self._path = path
        self._statements = statements
        self._clock = clock
        self._patience = patience
        self._checkpointer = checkpointer
        self._turn = locks.turn_for(path)
        self._waiting: SimpleQueue[_Operation | None] = SimpleQueue()
        # Whoever holds it may use the connection.
        self._lead = threading.Lock()
        # How many wrote together last: one alone need not wait for company.
        self._crowd = 1
        self._guard = threading.Lock()
        self._pause = threading.Event()
        self._closed = False
        # Whether the write lock, if this process holds it, is held by us rather than by the caller.
        self._writing = False
        self._pid = os.getpid()
        # We wait for outsiders that hold the write lock ourselves, so that the wait can be given up.
        connection.execute("pragma busy_timeout = 0")
        self._thread = threading.Thread(target=self._work, name="windlass-writer", daemon=True)
        self._thread.start()

    def run(self, verb: Callable[..., T], *args: object, urgent: bool = False) -> T:
        """Run a verb in a transaction; comes back after the durable commit, or raises: nothing written."""
        if self._closed or self._pid != os.getpid():
            raise StoreUnavailable(f"{self._path} was closed in this process; open it again")
        operation = _Operation(verb, args, urgent=urgent)
        if not self._write_at_once(operation):
            self._wait_for(operation)
        if operation.error is not None:
            raise operation.error
        result: T = operation.result
        return result

    def close(self) -> None:
        """Write what waits, then stop."""
        if self._closed:
            return
        self._closed = True
        self._waiting.put(None)
        self._thread.join()
        with self._lead:
            self._turn.close()
            self._connection.close()

    # --- on the caller's thread ---

    def _write_at_once(self, operation: _Operation) -> bool:
        """Nobody writes: do it here, which saves two changes of thread. False if somebody does after all.

        An exception may strike this thread at any step: an interrupt from the keyboard, or one thrown into
        a handler whose time is over. Whatever it leaves behind is set right by whoever comes next.
        """
        if self._crowd > 1 or self._lead.locked() or not self._waiting.empty():
            return False
        group = [operation]
        with self._lead:
            try:
                if self._closed or not self._turn.take_if_free() or not self._begun():
                    return False
                self._turn.leave_door()
                operation.begun = True
                self._finish(group)
            finally:
                self._turn.leave_door()
                self._turn.give()
        if self._checkpointer is not None and self._checkpointer.is_due():
            # Emptying the log takes a while: the writer's thread does it, and nobody waits.
            self._waiting.put(_Operation(_nothing, (), urgent=False))
        return True

    def _wait_for(self, operation: _Operation) -> None:
        """Leave it to the writer's thread, as long as our patience lasts."""
        done = operation.done = threading.Lock()
        done.acquire()
        self._waiting.put(operation)
        if done.acquire(timeout=min(_OWN_LOCK_SECONDS, self._patience)):
            return
        if self._caller_writes() and self._give_up(operation):
            raise StoreBusy(
                f"this process holds a write transaction on {self._path} on another connection: "
                "commit it first, or enqueue within it by connection=...",
            )
        if done.acquire(timeout=max(0.0, self._patience - _OWN_LOCK_SECONDS)):
            return
        if self._give_up(operation):
            who = locks.describe(None if self._path == MEMORY else locks.holder(self._path))
            raise StoreBusy(
                f"{who} has held the write lock of {self._path} for {self._patience:g} s; "
                "nothing was written: try again, or end that process's transaction",
            )
        done.acquire()

    def _caller_writes(self) -> bool:
        return self._path != MEMORY and not self._writing and locks.writes_itself(self._path)

    def _give_up(self, operation: _Operation) -> bool:
        """Take an operation back, unless its transaction has begun."""
        with self._guard:
            operation.given_up = not operation.begun
            return operation.given_up

    # --- on the writer's thread ---

    def _work(self) -> None:
        while (operation := self._waiting.get()) is not None:
            if self._waiting.qsize() + 1 < self._crowd:
                # Those of the last group come again in a moment: one commit for all is worth the wait.
                self._pause.wait(_GATHER_SECONDS)
            with self._lead:
                group = [operation, *self._others()]
                self._crowd = len(group)
                self._write(group)

    def _others(self) -> Iterator[_Operation]:
        """Whoever else waits by now."""
        for _ in range(_MOST_AT_ONCE):
            try:
                operation = self._waiting.get_nowait()
            except Empty:
                return
            if operation is None:
                self._waiting.put(None)
                return
            yield operation

    def _write(self, group: list[_Operation]) -> None:
        """One transaction and one turn for all; then the answers; then, if it is time, a checkpoint."""
        group.sort(key=lambda operation: not operation.urgent)
        self._turn.take()
        try:
            if self._begin(group):
                self._finish([operation for operation in group if operation.begun])
            for operation in group:
                if operation.done is not None:
                    operation.done.release()
            self._checkpoint()
        finally:
            self._turn.give()

    def _begin(self, group: list[_Operation]) -> bool:
        """Take SQLite's write lock; False when everybody has given up waiting for it, or cannot have it."""
        try:
            while not self._begun():
                if all(operation.given_up for operation in group):
                    return False
                self._pause.wait(_OUTSIDER_SECONDS)
        except sqlite3.Error as error:
            self._fail(group, self._refusal(error))
            return False
        with self._guard:
            for operation in group:
                operation.begun = not operation.given_up
        return True

    def _checkpoint(self) -> None:
        """Nobody's answer depends on it: what fails now is tried again after a later commit."""
        if self._checkpointer is None or not self._checkpointer.is_due():
            return
        try:
            self._checkpointer.run(self._connection)
        except sqlite3.Error as error:
            log.warning("store.checkpoint_failed", extra={"store": self._path, "error": str(error)})

    # --- on either ---

    def _begun(self) -> bool:
        """Try to take SQLite's write lock."""
        if self._connection.in_transaction:
            # Somebody was struck by an exception before he could end his transaction.
            self._connection.execute("rollback")
        try:
            self._connection.execute("begin immediate")
        except sqlite3.OperationalError as error:
            if isinstance(explain(error, self._path), StoreBusy):
                return False
            raise
        self._writing = True
        return True

    def _finish(self, group: list[_Operation]) -> None:
        """Run and commit. Each operation fails alone, unless the transaction as a whole fails."""
        try:
            tx = SqliteTx(self._connection, self._statements, self._clock.micros())
            if len(group) == 1:
                group[0].result = group[0].verb(tx, *group[0].args)
            else:
                self._run_group(group, tx)
            self._connection.execute("commit")
        except Exception as error:  # noqa: BLE001 # wall: the writer outlives whatever happens to a group
            self._fail(group, self._refusal(error))
        except BaseException:
            self._connection.rollback()
            raise
        finally:
            self._writing = False

    def _run_group(self, group: list[_Operation], tx: SqliteTx) -> None:
        """All at once; if one of them fails, all again, each in a part of its own."""
        try:
            with tx.part():
                for operation in group:
                    operation.result = operation.verb(tx, *operation.args)
        except Exception:
            # Not one operation, but the transaction has failed: a full disk, say.
            if not self._connection.in_transaction:
                raise
            for operation in group:
                self._run_apart(operation, tx)

    def _run_apart(self, operation: _Operation, tx: SqliteTx) -> None:
        try:
            with tx.part():
                operation.result = operation.verb(tx, *operation.args)
        except Exception as error:  # wall: a verb that breaks must not take its neighbours along
            if not self._connection.in_transaction:
                raise
            operation.error = self._refusal(error)

    def _refusal(self, error: Exception) -> WindlassError:
        if isinstance(error, WindlassError):
            return error
        if isinstance(error, sqlite3.Error):
            return explain(error, self._path)
        failure = StoreError(f"{self._path}: {error!r}")
        failure.__cause__ = error
        return failure

    def _fail(self, group: list[_Operation], error: WindlassError) -> None:
        if self._connection.in_transaction:
            self._connection.execute("rollback")
        for operation in group:
            operation.result = None
            # Each caller raises its own: one exception raised in many threads would mix their tracebacks.
            operation.error = operation.error or copy.copy(error)


def _nothing(tx: SqliteTx) -> None:
    """An operation that only wakes the writer's thread."""
