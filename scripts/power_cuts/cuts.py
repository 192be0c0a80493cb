"""Cut the power at many points of one recording.

`python -m power_cuts.cuts LOG SEED FIRST END STEP IGNORED [FOLDER]` is a process of its own, since it must
use the SQLite of the recording. It writes a line of JSON for each cut: number, kind, place, what is wrong.
With FOLDER the files of the last cut are left there.
"""

from __future__ import annotations

import json
import logging
import random
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from power_cuts.disk import KINDS, Disk, Event, read
from power_cuts.verdict import judge

# Where files are built: in memory, where there is such a folder.
MEMORY = Path("/dev/shm")  # noqa: S108 - a fresh folder below it
# A store that was put in place is in use after this number of events.
SWAP_EVENTS = 150


class Cut(NamedTuple):
    """A cut at a place of the log, and what becomes of unsynced writes."""

    place: int
    number: int
    kind: str
    chance: random.Random


def choose(events: Sequence[Event], seed: int, numbers: Sequence[int]) -> list[Cut]:
    """Anywhere; around syncs and answers; around changes of file and names; where a backup takes over."""
    files: dict[int, str] = {}
    near: list[int] = []
    rare: list[int] = []
    swaps: list[int] = []
    for place, event in enumerate(events):
        if event.kind == "o":
            files[event.inode] = event.data.decode()
        if event.kind in "sSm":
            near += [place, place + 1]
        if event.kind in "tulr" or (event.kind in "owsS" and not files[event.inode].endswith("-wal")):
            rare += [place, place + 1]
        if event.kind == "m" and event.data.startswith(b'["swap'):
            swaps += range(place, min(place + SWAP_EVENTS, len(events)))
    cuts = []
    for number in numbers:
        chance = random.Random(f"{seed}:{number}")
        place = chance.choice(chance.choice([range(len(events) + 1), near, rare, swaps or near]))
        cuts.append(Cut(place, number, KINDS[chance.randrange(len(KINDS))], chance))
    return sorted(cuts)


def check(
    log: Path, seed: int, numbers: Sequence[int], ignored: str, kept: Path | None = None
) -> Iterator[str]:
    """Build and judge one cut after the other, in the order of the log."""
    events = read(log)
    orders = json.loads(log.with_suffix(".orders").read_text(encoding="utf-8"))
    disk = Disk(events, ignored)
    for cut in choose(events, seed, numbers):
        disk.advance(cut.place)
        with tempfile.TemporaryDirectory(
            prefix="windlass-cut-", dir=MEMORY if MEMORY.is_dir() else None
        ) as name:
            folder = Path(name)
            disk.build(folder, cut.kind, cut.chance)
            if kept:
                shutil.copytree(folder, kept, dirs_exist_ok=True)
            problems = judge(folder, disk.marks, orders)
        yield json.dumps([cut.number, cut.kind, cut.place, problems])


def main() -> None:
    """Read the command line."""
    log, seed, first, end, step, ignored, *kept = sys.argv[1:]
    # What the store logs about a store that was cut off is no news here.
    logging.disable()
    numbers = range(int(first), int(end), int(step))
    for line in check(Path(log), int(seed), numbers, ignored, Path(kept[0]) if kept else None):
        print(line, flush=True)


if __name__ == "__main__":
    main()
