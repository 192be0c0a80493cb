"""Write to SQLite: one connection for all threads of the process, and one commit for all who wait.

Who comes while nobody writes does so on its own thread. Who comes meanwhile waits, and the writer's thread
then writes for all who wait, in one transaction and one commit (`group_commit.py`).
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Any, TypeVar

from windlass.clock import Clock
from windlass.errors import StoreBusy, StoreError, StoreUnavailable, WindlassError
from windlass.store.engine import StoreClosed
from windlass.store.group_commit import Call, GroupCommit, calling, check_wanted, fail, share
from windlass.store.sqlite import beside, storefile
from windlass.store.sqlite.connection import LONGEST_LOG, MEMORY, Connection, SqliteTx, explain
from windlass.store.sqlite.library import sqlite3
from windlass.store.sqlite.storefile import StoreFile

# SQLite's own default. A commit into a file that still grows takes twice as long, so what is written
# between two looks shall fit into the log as it is; one that a large transaction has made longer is used.
_LARGE_LOG = 4 * 1024 * 1024
_USED = 3 / 4
# A log that has grown by so much is in real use: it is made large at once. That takes as long as about fifty
# commits, too long for who only has a few.
_GROWING = 256 * 1024
# A look at the file costs a single enqueue more than its own statement does.
_LOOK_SECONDS = 0.005


class Checkpointer:
    """Makes the log large once, and empties it again and again.

    A checkpoint empties it, run while the writer holds SQLite's write lock, so that no commit can race it.
    Releases before 3.51.3 can corrupt the log when a commit on one connection races a checkpoint on
    another. Nobody commits while the write lock is held, whichever process or program they are.
    """

    def __init__(self, file: StoreFile, *, look_seconds: float = _LOOK_SECONDS) -> None:
        self._look_seconds = look_seconds
        # Which has made the log by the time it is open. SQLite has no locks on that file that closing it
        # could lose. Whoever looks later may be struck by an exception, so it is opened here, once.
        self._connection = file.connect()
        with beside.or_close(self._connection.close):
            # See `_make_room`.
            self._connection.execute("pragma cache_size = 10")
            self._connection.execute("pragma busy_timeout = 0")
            try:
                self._log = os.open(file.path + "-wal", os.O_RDONLY | os.O_CLOEXEC)
            except OSError as error:
                raise StoreUnavailable(f"cannot read {file.path}-wal: {error.strerror}") from error
        # Beyond this size a log that is still short is made large.
        self._short: float = self._size() + _GROWING
        self._limit = _LARGE_LOG
        self._due = False
        self._next_look = 0.0

    def is_due(self) -> bool:
        """Whether so much stood in the log at the last look that it should be emptied, or made large."""
        now = monotonic()
        if now >= self._next_look:
            self._next_look = now + self._look_seconds
            try:
                size = os.fstat(self._log).st_size
                if size < _LARGE_LOG:
                    self._limit = _LARGE_LOG
                    self._due = size > self._short
                else:
                    self._due = size > self._limit and self._is_written_at(self._limit)
            except OSError:
                # Closed meanwhile by another thread: whoever asks has written, and shall not fail for that.
                self._due = False
        return self._due

    def run(self, writer: sqlite3.Connection) -> None:
        self._due = False
        if self._size() < _LARGE_LOG:
            self._make_room()
        size = self._size()
        # Also after that: what was taken back has the mark of this time round, and would look like much.
        emptied = self.empty(writer)
        # A reader can keep the log from being emptied: then wait until as much again has been written.
        self._limit = max(_LARGE_LOG, int(min(size, LONGEST_LOG) * _USED)) if emptied else size + _LARGE_LOG

    def _make_room(self) -> None:
        """Make the log large, once: whoever cuts it back afterwards wants it short."""
        try:
            self._connection.execute("begin immediate")
            # What the cache cannot hold is in the log by then, which stays so when it is taken back.
            self._connection.execute("create table windlass_room (made)")
            self._connection.execute("insert into windlass_room values (zeroblob(?))", (_LARGE_LOG,))
        finally:
            self._connection.rollback()
            # If it failed: tried again when as much has been written again. A full disk has let the log grow.
            self._short = self._size() + _GROWING
        self._short = math.inf

    def empty(self, writer: sqlite3.Connection) -> bool:
        """Move what the log holds into the file, under the writer's lock; False if readers keep some."""
        writer.execute("begin immediate")
        try:
            busy, pages, moved = self._connection.execute("pragma wal_checkpoint(passive)").fetchone()
        finally:
            writer.execute("rollback")
        return not busy and pages == moved

    def close(self) -> None:
        self._connection.close()
        os.close(self._log)

    def _is_written_at(self, place: int) -> bool:
        """Whether the log has come so far this time round.

        Once it is empty its file is used again from the beginning, and what stands behind is of the time
        before: the file's size does not tell.
        """
        header = os.pread(self._log, beside.HEADER, 0)
        if len(header) < beside.HEADER:
            return False
        [page_size] = struct.unpack_from(">I", header, beside.PAGE_SIZE)
        whole = beside.FRAME_HEADER + page_size
        frame = os.pread(self._log, beside.FRAME_HEADER, beside.HEADER + place // whole * whole)
        mark = header[beside.HEADER_MARK : beside.HEADER_MARK + beside.MARK_SIZE]
        return frame[beside.FRAME_MARK : beside.FRAME_MARK + beside.MARK_SIZE] == mark

    def _size(self) -> int:
        return os.fstat(self._log).st_size


T = TypeVar("T")
log = logging.getLogger("windlass.store")

_MOST_AT_ONCE = 256
# A caller that waits for itself is told so after this time rather than after its whole patience.
_OWN_LOCK_SECONDS = 5.0
# How often we look whether an outsider has let go of the write lock.
_OUTSIDER_SECONDS = 0.01
_GATHER_SECONDS = 0.0006
# Longer than any transaction of ours: whoever has not come back by then waits for somebody frozen.
_ENDING_SECONDS = 2.0


class Operation(Call):
    """One verb on its way through the writer."""

    __slots__ = ("args", "joins", "urgent", "verb")

    def __init__(
        self, verb: Callable[..., Any], args: tuple[Any, ...], *, urgent: bool = False, joins: bool = False
    ) -> None:
        super().__init__()
        self.verb = verb
        self.args = args
        self.urgent = urgent
        # Whether the verb takes a list and answers with one as long: then many callers' are done as one.
        self.joins = joins


class Writer:
    """The one connection of this process that writes."""

    def __init__(
        self,
        connect: Callable[[], Connection],
        file: StoreFile,
        *,
        statements: Mapping[str, str],
        clock: Clock,
        patience: float,
        open_now: bool,
    ) -> None:
        self._connect = connect
        self._file = file
        self._path = file.path
        # Whether this user can only read the file.
        self.read_only = file.read_only
        self._generation = 0
        self._statements = statements
        self._clock = clock
        self._patience = patience
        self._pause = threading.Event()
        self._closed = False
        # Whether the write lock, if this process holds it, is held by us rather than by the caller.
        self._writing = False
        self._pid = os.getpid()
        # None while every file is closed, as around a fork.
        self._connection: Connection | None = None
        self._checkpointer: Checkpointer | None = None
        if open_now and not self.read_only:
            self._open()
        # Whoever has its lead may use the connection, the turn and the checkpointer.
        self._line = GroupCommit(
            "windlass-writer",
            self._write_group,
            most=_MOST_AT_ONCE,
            gather_seconds=_GATHER_SECONDS,
            after=self._checkpoint,
        )

    def run(
        self,
        verb: Callable[..., T],
        *args: object,
        urgent: bool = False,
        joins: bool = False,
        alone: Callable[..., T | None] | None = None,
    ) -> T:
        """Run a verb in a transaction; comes back after the durable commit, or raises: nothing written.

        `alone` does the same by a single statement, which is a transaction by itself; None if it cannot.
        """
        if self._closed or self._pid != os.getpid():
            raise StoreClosed(self._path)
        if self.read_only:
            raise StoreUnavailable(f"{self._path} is read-only for this user; nothing was written")
        check_wanted()
        if self._line.is_free():
            try:
                with self._line.lead:
                    wrote, result = self._write_at_once(alone or verb, args, alone=alone is not None)
            except StoreUnavailable:
                if self._file.lost:
                    # Nobody else may come: the writer's thread lets go of the file.
                    self._wake()
                raise
            if wrote:
                # As `checkpoint_soon`, without a call: every enqueue comes here.
                checkpointer = self._checkpointer
                if checkpointer is not None and checkpointer.is_due():
                    self._wake()
                return result  # type: ignore[no-any-return]
        operation = Operation(verb, args, urgent=urgent, joins=joins)
        return self._line.run(operation, self._wait_for)  # type: ignore[no-any-return]

    def _wake(self) -> None:
        """Let the writer's thread look at the file; nobody waits for that."""
        operation = Operation(lambda _: None, ())
        operation.awaited = False
        self._line.put([operation])

    def checkpoint_soon(self) -> None:
        """If the log is full, let the writer's thread empty it; nobody waits for that."""
        # Looked at once: another thread may close the store meanwhile.
        checkpointer = self._checkpointer
        if checkpointer is not None and checkpointer.is_due():
            self._wake()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        # Not for ever: the thread may wait for a process that is frozen, and ends with this one.
        self._line.close(_ENDING_SECONDS)
        if self._line.lead.acquire(timeout=_ENDING_SECONDS):
            self._let_go()
            self._line.lead.release()

    # --- around a fork: see store.py ---

    def pause(self) -> bool:
        """Finish what is being written and let go of every file; False if that is not possible soon."""
        if not self._line.lead.acquire(timeout=_ENDING_SECONDS):
            return False
        self._let_go()
        return True

    def resume(self) -> None:
        self._line.lead.release()

    def _open(self) -> None:
        """Open every file, or none: the next to come tries again."""
        with contextlib.ExitStack() as undo:
            connection = undo.enter_context(contextlib.closing(self._connect()))
            # We wait for outsiders that hold the write lock ourselves, so that the wait can be given up.
            connection.execute("pragma busy_timeout = 0")
            turn = undo.enter_context(contextlib.closing(storefile.turn_for(self._path)))
            checkpointer = None if self._path == MEMORY else Checkpointer(self._file)
            if isinstance(turn, storefile.Turn):
                self._file.note_beside(turn)
            undo.pop_all()
        self._generation = connection.generation
        self._turn, self._checkpointer = turn, checkpointer
        # Last, since it says that all are open.
        self._connection = connection

    def _let_go(self) -> None:
        """Close every file.

        If the store is no longer at its path, what was committed goes from the log into the file first: the
        log does not move with it.
        """
        if self._connection is None:
            return
        with contextlib.suppress(StoreUnavailable):
            self._file.check(self._connection)
        if self._file.truncated:
            beside.keep_log(self._path)
        elif self._file.lost or self._generation != self._file.generation:
            try:
                if self._checkpointer is not None and self._checkpointer.empty(self._connection):
                    self._file.remove_beside()
            except (sqlite3.Error, OSError) as error:
                log.warning("store.checkpoint_failed", extra={"store": self._path, "error": str(error)})
        self._file.release_beside()
        connection, self._connection = self._connection, None
        checkpointer, self._checkpointer = self._checkpointer, None
        connection.close()
        if checkpointer is not None:
            checkpointer.close()
        if isinstance(self._turn, storefile.Turn) and not self._file.lost:
            self._file.forget_beside(self._turn)
        self._turn.close()

    def _connected(self) -> Connection:
        if self._file.lost or self._generation != self._file.generation:
            self._let_go()
            self._file.ensure()
        if self._connection is None:
            if self._closed:
                raise StoreClosed(self._path)
            self._open()
        assert self._connection is not None  # noqa: S101 - just opened
        return self._connection

    # --- on the caller's thread ---

    def _write_at_once(
        self, verb: Callable[..., Any], args: tuple[Any, ...], *, alone: bool
    ) -> tuple[bool, Any]:
        """Nobody writes: do it here, which saves two changes of thread. (False, None) if somebody does.

        An exception may strike this thread at any step: an interrupt from the keyboard, or one thrown into
        a handler whose time is over. Therefore whatever is taken is taken within the `try`, and each
        `finally` makes one plain call into SQLite or the system, which nothing can strike before it is done.
        """
        connection = self._connected()
        turn = self._turn
        in_door = True
        try:
            if not turn.take_if_free() or not (alone or self._begun(connection)):
                return False, None
            turn.leave_door()
            in_door = False
            self._writing = True
            self._file.check(connection)
            result = verb(SqliteTx(connection, self._statements, self._clock.micros()), *args)
            if not alone:
                connection.execute("commit")
            self._file.check_kept(connection)
        except sqlite3.Error as error:
            failure = explain(error, self._path)
            if alone and isinstance(failure, StoreBusy):
                return False, None
            raise failure from error
        finally:
            self._writing = False
            try:
                connection.rollback()
            finally:
                try:
                    if in_door:
                        turn.leave_door()
                finally:
                    turn.give()
        return not alone or result is not None, result

    def _wait_for(self, operation: Operation) -> None:
        patience = min(self._patience, calling().patience)
        if operation.wait(min(_OWN_LOCK_SECONDS, patience)):
            return
        if self._closed and self._line.give_up(operation):
            raise StoreClosed(self._path)
        caller_writes = self._path != MEMORY and not self._writing and storefile.writes_itself(self._path)
        if caller_writes and self._line.give_up(operation):
            raise StoreBusy(
                f"this process holds a write transaction on {self._path} on another connection: "
                "commit it first, or enqueue within it by connection=..."
            )
        if operation.wait(max(0.0, patience - _OWN_LOCK_SECONDS)):
            return
        if self._line.give_up(operation):
            who = storefile.describe(None if self._path == MEMORY else storefile.holder(self._path))
            raise StoreBusy(
                f"{who} has held the write lock of {self._path} for {patience:g} s; "
                "nothing was written: try again, or end that process's transaction"
            )
        operation.wait()

    # --- on the writer's thread ---

    def _write_group(self, group: list[Operation]) -> None:
        try:
            group.sort(key=lambda operation: not operation.urgent)
            connection = self._connected()
            self._turn.take()
            try:
                if self._lock(connection, group):
                    begun = self._line.begin(group)
                    self._file.check(connection)
                    self._run_group(begun, connection)
                    connection.execute("commit")
                    self._file.check_kept(connection)
            finally:
                self._writing = False
                connection.rollback()
                self._turn.give()
        except Exception as error:  # noqa: BLE001 # wall: the callers raise it
            fail(group, self._refusal(error))

    def _lock(self, connection: sqlite3.Connection, group: list[Operation]) -> bool:
        """Take SQLite's write lock; False when everybody has given up waiting for it."""
        while not self._begun(connection):
            if all(operation.given_up for operation in group):
                return False
            self._pause.wait(_OUTSIDER_SECONDS)
        return True

    def _run_group(self, group: list[Operation], connection: sqlite3.Connection) -> None:
        """All at once; if one of them fails, all again, each in a part of its own."""
        tx = SqliteTx(connection, self._statements, self._clock.micros())
        try:
            with tx.part():
                _run_joined(tx, [operation for operation in group if operation.joins])
                for operation in group:
                    if not operation.joins:
                        operation.result = operation.verb(tx, *operation.args)
        except Exception:  # wall: one operation's failure is its own, and each is tried apart
            # Not one operation, but the transaction has failed: a full disk, say.
            if not connection.in_transaction:
                raise
            for operation in group:
                try:
                    with tx.part():
                        operation.result = operation.verb(tx, *operation.args)
                except Exception as error:  # wall: a verb that breaks must not take its neighbours along
                    if not connection.in_transaction:
                        raise
                    operation.error = self._refusal(error)

    def _checkpoint(self) -> None:
        """If it is time. All have their answers: what fails now is tried again after a later commit."""
        if self._connection is None or self._checkpointer is None or not self._checkpointer.is_due():
            return
        try:
            self._turn.take()
            # Who waits for this must not learn that it waits for its own transaction.
            self._writing = True
            # Not into what is left of a truncated file; and afterwards, how long it is by now.
            self._file.check(self._connection)
            self._checkpointer.run(self._connection)
            self._file.check(self._connection)
        except Exception as error:  # noqa: BLE001 # wall: the writer outlives a checkpoint that fails
            log.warning("store.checkpoint_failed", extra={"store": self._path, "error": str(error)})
        finally:
            self._writing = False
            self._turn.give()

    def _refusal(self, error: Exception) -> WindlassError:
        if isinstance(error, WindlassError):
            return error
        if isinstance(error, sqlite3.Error):
            return explain(error, self._path)
        failure = StoreError(f"{self._path}: {error!r}")
        failure.__cause__ = error
        return failure

    def _begun(self, connection: sqlite3.Connection) -> bool:
        try:
            connection.execute("begin immediate")
        except sqlite3.OperationalError as error:
            if isinstance(explain(error, self._path), StoreBusy):
                return False
            raise
        self._writing = True
        return True


def _run_joined(tx: SqliteTx, group: Sequence[Operation]) -> None:
    for verb in {operation.verb for operation in group}:
        same = [operation for operation in group if operation.verb is verb]
        answers = verb(tx, [item for operation in same for item in operation.args[0]])
        share(((operation, len(operation.args[0])) for operation in same), answers)
