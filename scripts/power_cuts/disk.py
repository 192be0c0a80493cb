"""The disk as the log describes it, and how it can look after a cut.

What was synced before the cut is there. Of the rest each sector may have any of the contents that it had
since, and each name in the folder may be there or not. A sync of a file does not sync its name: that takes a
sync of the folder.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SECTOR = 512
RECORD = struct.Struct("=IIQQ")
# How unsynced writes and names are treated.
KINDS = ("dropped", "kept", "in order", "torn", "reordered", "garbage")
FOLDER = "."
HALF = 0.5


class Event(NamedTuple):
    """One call of a recorded process: a letter (see shim.c), the inode, an offset or number, the data."""

    kind: str
    inode: int
    offset: int
    data: bytes


def read(log: Path) -> list[Event]:
    """All events of a log."""
    text, place, events = log.read_bytes(), 0, []
    while place < len(text):
        kind, length, inode, offset = RECORD.unpack_from(text, place)
        place += RECORD.size
        events.append(Event(chr(kind), inode, offset, text[place : place + length]))
        place += length
    return events


class File:
    """What is surely on the disk of a file, and the later writes, each with its place in the log."""

    def __init__(self, inode: int) -> None:
        self.inode = inode
        self.durable = bytearray()
        self.pending: list[tuple[int, Event]] = []

    def sync(self, before: int) -> None:
        """What was written before that place in the log is on the disk now."""
        while self.pending and self.pending[0][0] < before:
            apply(self.durable, self.pending.pop(0)[1])

    def whole(self) -> bytearray:
        """The file as its processes see it."""
        content = self.durable[:]
        for _, event in self.pending:
            apply(content, event)
        return content


def apply(content: bytearray, event: Event) -> None:
    """Do to a content what an event did."""
    if event.kind == "t":
        resize(content, event.offset)
    else:
        resize(content, max(len(content), event.offset))
        content[event.offset : event.offset + len(event.data)] = event.data


def resize(content: bytearray, size: int) -> None:
    """Cut off the end, or add zeros."""
    del content[size:]
    content.extend(bytes(size - len(content)))


class Disk:
    """The state of the folder at one place of the log; it only moves forward."""

    def __init__(self, events: list[Event], ignored: str = "") -> None:
        self.events = events
        self.at = 0
        # Planted fault: syncs of files whose names end with this do nothing.
        self._ignored = ignored
        self._files: dict[int, File] = {}
        # Names that are surely on the disk, names as processes see them, and what happened in between.
        self._durable: dict[str, File] = {}
        self.names: dict[str, File] = {}
        self._pending: list[tuple[int, dict[str, File | None]]] = []
        self._syncs: dict[int, int] = {}
        self.marks: list[str] = []

    def advance(self, place: int) -> None:
        """Go on to a place in the log."""
        while self.at < place:
            event = self.events[self.at]
            match event.kind:
                case "w" | "t":
                    self._files[event.inode].pending.append((self.at, event))
                case "s":
                    self._syncs[event.offset] = self.at
                case "S":
                    self._sync(event.inode, self._syncs.pop(event.offset))
                case "m":
                    self.marks.append(event.data.decode())
                case _:
                    self._rename(event)
            self.at += 1

    def _sync(self, inode: int, before: int) -> None:
        file = self._files[inode]
        names = [name for name, each in self.names.items() if each is file]
        if self._ignored and any(name.endswith(self._ignored) for name in names):
            return
        file.sync(before)
        if FOLDER in names:
            while self._pending and self._pending[0][0] < before:
                change(self._durable, self._pending.pop(0)[1])

    def _rename(self, event: Event) -> None:
        """A name appears, or goes."""
        first, _, second = event.data.decode().partition("\0")
        changes: dict[str, File | None] = {}
        match event.kind:
            case "o":
                if event.offset == 1 or first not in self.names:
                    # The inode may have been that of a removed file.
                    self._files[event.inode] = File(event.inode)
                    changes[first] = self._files[event.inode]
                elif event.offset:
                    self._files[event.inode].pending.append((self.at, Event("t", event.inode, 0, b"")))
            case "u":
                changes[first] = None
            case "l":
                changes[second] = self.names[first]
            case "r":
                changes = {first: None, second: self.names[first]}
        if changes:
            change(self.names, changes)
            self._pending.append((self.at, changes))

    def build(self, folder: Path, kind: str, chance: random.Random) -> None:
        """Write the files as they could be if the power failed now."""
        starts = [file.pending[0][0] for file in self.names.values() if file.pending]
        starts += [place for place, _ in self._pending[:1]]
        fate = Fate(kind, chance, chance.randint(min(starts, default=self.at), self.at))
        names = dict(self._durable)
        for place, changes in self._pending:
            if fate.keeps(place):
                change(names, changes)
        inodes: dict[int, int] = {}
        for name, file in names.items():
            if name not in (FOLDER, "marks"):
                (folder / name).write_bytes(fate.content(file))
                inodes[file.inode] = (folder / name).stat().st_ino
        for lock in folder.glob("*-turn"):
            lock.write_bytes(renumbered(lock.read_bytes(), inodes, folder.stat().st_dev))
        if chance.random() < HALF:
            # An index that is left from before, which SQLite must not believe.
            (folder / "jobs.db-shm").write_bytes(chance.randbytes(32768))


class Fate:
    """What becomes of unsynced writes and names; `end` is the last of them if they are kept in order."""

    def __init__(self, kind: str, chance: random.Random, end: int) -> None:
        self.kind, self.chance, self.end = kind, chance, end
        self.share = chance.choice((0.1, 0.5, 0.9))

    def keeps(self, place: int) -> bool:
        """Whether the change at that place of the log is on the disk."""
        if self.kind in ("dropped", "kept", "in order"):
            return self.kind == "kept" or (self.kind == "in order" and place < self.end)
        return self.chance.random() < self.share

    def content(self, file: File) -> bytearray:
        """What a file holds."""
        content, current = file.durable[:], file.durable[:]
        for place, event in file.pending:
            apply(current, event)
            if event.kind == "t":
                if self.keeps(place):
                    resize(content, event.offset)
                continue
            for start, stop in self._parts(place, event):
                self._stretch(content, start)
                content[start:stop] = current[start:stop]
        if self.kind not in ("dropped", "kept", "in order") and self.chance.random() < HALF:
            # The new size is on the disk before the contents are.
            self._stretch(content, len(current))
        return content

    def _parts(self, place: int, event: Event) -> Iterator[tuple[int, int]]:
        """The sectors of a write that are on the disk."""
        first, end = event.offset // SECTOR * SECTOR, event.offset + len(event.data)
        if self.kind in ("torn", "garbage"):
            for start in range(first, end, SECTOR):
                if self.chance.random() < self.share:
                    yield start, start + SECTOR
        elif self.keeps(place):
            yield first, -(-end // SECTOR) * SECTOR
        elif self.kind == "in order" and place == self.end:
            yield first, self.chance.randint(first, end) // SECTOR * SECTOR

    def _stretch(self, content: bytearray, size: int) -> None:
        """Room that a file got without its contents: zeros, or what another file had left there."""
        more = max(0, size - len(content))
        content.extend(self.chance.randbytes(more) if self.kind == "garbage" else bytes(more))


def change(names: dict[str, File], changes: dict[str, File | None]) -> None:
    """Add and remove names."""
    for name, file in changes.items():
        names.pop(name, None)
        if file is not None:
            names[name] = file


def renumbered(note: bytes, inodes: dict[int, int], device: int) -> bytes:
    """The note in a lock file, which names the other files by their numbers, as they are here."""
    for old, new in inodes.items():
        note = note.replace(b",%d]" % old, b",%d]" % new)
    head, *rest = note.split(b"[")
    return b"[".join([head, *(b"%d,%s" % (device, each.partition(b",")[2]) for each in rest)])
