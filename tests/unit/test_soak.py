"""Does a soak judge in portions as it would judge the whole, and see growth, calm and quantiles rightly?"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from uuid import UUID

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from soak import notes, portions, report  # noqa: E402 - found by the line above
from soak.plan import Plan  # noqa: E402 - likewise

from tests.history.check import ACCEPTED, NOT_RECORDED, Rules, check  # noqa: E402 - likewise
from tests.history.end import look  # noqa: E402 - likewise
from tests.history.record import Outcome, Reader, Recorder, Verb  # noqa: E402 - likewise
from windlass import connect  # noqa: E402 - likewise
from windlass.clock import uuid7  # noqa: E402 - likewise
from windlass.job import NewJob  # noqa: E402 - likewise
from windlass.store.store import Store  # noqa: E402 - likewise

RULES = Rules(all_end=False, recording=NOT_RECORDED.recording)


def earlier(minutes: int) -> str:
    """An id that was made some minutes ago."""
    return str(UUID(int=UUID(uuid7()).int - (minutes * 60_000 << 80)))


def new(job_id: str) -> NewJob:
    return NewJob(id=job_id, type="t", payload=b"{}", max_attempts=3)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with closing(connect.open(url)) as opened:
        yield opened.store


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    return Recorder(tmp_path / "history", "test")


@pytest.mark.parametrize("lose", [False, True])
def test_portions_amount_to_the_verdict_on_the_whole(
    tmp_path: Path, url: str, store: Store, recorder: Recorder, *, lose: bool
) -> None:
    for minutes in range(0, 30, 5):
        recorder.enqueue(store, [new(earlier(minutes)) for _ in range(3)])
    # One call with jobs of several portions.
    recorder.enqueue(store, [new(earlier(minutes)) for minutes in (1, 11, 21)])
    missing = earlier(13)
    if lose:
        call = recorder.begin(Verb.ENQUEUE, [missing])
        recorder.finish(call, Outcome.ANSWERED, answer=[missing])
    whole = check(Reader(recorder.path).read(), look(store, url), RULES)
    files = portions.split(recorder.path, tmp_path / "portions")
    judged = portions.judge(store, url, files, RULES)
    assert len(files.portions) > 3
    assert judged.jobs == 21
    assert {each.promise: each.held for each in judged.all()} == {
        each.promise: each.held for each in whole.promises
    }
    assert judged.counts == whole.counts
    broken = [each for each in judged.all() if not each.held]
    assert [each.promise for each in broken] == ([ACCEPTED] if lose else [])
    assert all(missing in each.detail for each in broken)


def test_a_job_that_no_call_asked_for_is_found_in_its_portion(
    tmp_path: Path, url: str, store: Store, recorder: Recorder
) -> None:
    recorder.enqueue(store, [new(earlier(20))])
    store.enqueue([new(uuid7())])
    judged = portions.judge(store, url, portions.split(recorder.path, tmp_path / "portions"), RULES)
    assert [each.promise for each in judged.all() if not each.held] == [
        "no job is there, and none ran, that no one had asked for"
    ]


def test_calls_in_disturbed_moments_count_but_are_not_calm(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    writer = notes.Notes(str(path))
    for second in range(10):
        writer.add(notes.Note("post", 1000.0 + second, 10.0 if second < 5 else 500.0))
    writer.add(notes.Note("post", 1001.5, 30_000.0, tries=9, done=False))
    writer.flush()
    path.write_bytes(path.read_bytes() + b"post 10")
    disturbed = notes.Spans([(1007.0, 1009.0), (1005.0, 1007.5)])
    figures = notes.by_kind(notes.read(path), disturbed)["post"].figures()
    assert figures["made"] == 11
    assert figures["succeeded"] == 10
    assert figures["sent again"] == 1
    assert (figures["calm counted"], figures["calm max"], figures["max"]) == (5, 10.0, 500.0)


def test_growth_is_seen_by_the_second_half_and_noise_is_not_growth() -> None:
    grown = [{"memory of the steady server": 100.0 + n, "depth": 10.0 + n % 7} for n in range(200)]
    found = {each.what: each.stayed for each in report.growth(grown)}
    assert found == {"memory of the steady server": False, "depth": True}


def test_short_runs_have_every_kind_of_event_and_a_calm_end() -> None:
    plan = Plan.of("postgres", 60, 0.2, seed=3)
    events = plan.events()
    assert {event.what for event in events} == set(plan.every)
    assert max(event.at for event in events) < 56
    assert len(plan.past()) == sum(event.what == "prune" for event in events)
    assert plan.events() == Plan.of("postgres", 60, 0.2, seed=3).events()
