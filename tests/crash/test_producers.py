"""F-29: whoever takes requests in is killed in the middle of them."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
from pathlib import Path

from tests.waiting import PATIENCE
from tests.worker.stores import on_both
from windlass import connect
from windlass.job import JobState

url = on_both
_MANY = 100_000


def test_f29_what_a_killed_producer_was_answered_is_there_and_what_is_sent_again_is_not_doubled(
    url: str,
) -> None:
    """Two at a time, killed after some answers; each goes on with the request that was not answered."""
    chance = random.Random(29)
    opened = connect.open(url)
    accepted: set[int] = set()
    starts = [0, _MANY]
    for _ in range(3):
        producers = [start(url, first) for first in starts]
        for place, producer in enumerate(producers):
            told = kill_after(producer, chance.randint(1, 60))
            accepted.update(told)
            starts[place] = max([starts[place] - 1, *told]) + 1
    for first in starts:
        finish(url, first)
    store = opened.store
    found = {key: store.get(f"k{key}") for key in accepted | set(starts)}
    assert all(job is not None and job.state is JobState.PENDING for job in found.values())
    # Everything up to the last request, once each: none is missing and none is there twice.
    total = sum(count.count for count in store.counts().counts)
    assert total == (starts[0] + 1) + (starts[1] - _MANY + 1)
    opened.close()


def start(url: str, first: int, count: int = _MANY) -> subprocess.Popen[str]:
    words = [sys.executable, str(Path(__file__).with_name("producer.py")), url, str(first), str(count)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)


def kill_after(producer: subprocess.Popen[str], answers: int) -> list[int]:
    """Kill it after so many answers; all that it was answered, also while the signal was on its way."""
    assert producer.stdout is not None
    with producer.stdout as said:
        assert said.readline() == "ready\n"
        told = [int(line) for line in itertools.islice(said, answers)]
        producer.kill()
        told += [int(line) for line in said if line.endswith("\n")]
    producer.wait(PATIENCE)
    return told


def finish(url: str, first: int) -> None:
    """The request that nobody answered, once more."""
    producer = start(url, first, 1)
    assert producer.communicate(timeout=PATIENCE)[0].split() == ["ready", str(first)]
    assert producer.returncode == 0
